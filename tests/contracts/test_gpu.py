"""The GPU backend with NVIDIA's real Python packages, over stand-ins for the libraries of the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .stand_in import Make, missing_for_stand_ins, stand_in_environ, uuid

pytestmark = pytest.mark.skipif(bool(missing_for_stand_ins()), reason=missing_for_stand_ins() or "all is there")

NAME = "NVIDIA Stand-in"


def named(gpu: int) -> str:
    return f"GPU {gpu} ({NAME}, PCI 0000:{gpu + 1}0:00.0, {uuid(gpu)})"


def places(devices: list[Any]) -> list[list[int]]:
    return [location for _, _, location, _ in devices]


def test_four_gpus_come_up(make: Make) -> None:
    one = make()
    discovery = one.call("discover")
    assert discovery["present"]
    assert discovery["detail"].startswith("NVIDIA driver 999.88.77, 4 GPUs, 4 of them for this process; GPU 0: ")
    assert f"GPU 3: {NAME} ({uuid(3)}, PCI 0000:40:00.0, 80 GiB)" in discovery["detail"]
    assert one.call("start") == [[NAME, None, [x, 0, 0, 0], uuid(x)] for x in range(4)]
    assert one.call("discover") == discovery
    for _ in range(3):
        assert one.call("check_health") == {"ok": True, "detail": "", "permanent": False}
    one.call("stop")
    one.call("stop")
    assert not one.call("check_health")["ok"]
    assert one.end() == ""


def test_the_contract_of_backends(libraries: Path, tmp_path: Path) -> None:
    contract = Path(__file__).with_name("test_backend_contract.py")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "GPU", "-rs", str(contract)],
        env=stand_in_environ(libraries, tmp_path / "none"),
        cwd=contract.parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("2,0", [2, 0]),
        ("0,2,-1,1", [0, 2]),
        ("1,9,0", [1]),
        (uuid(3), [3]),
        (f"{uuid(3)},{uuid(1)}", [3, 1]),
    ],
)
def test_cuda_visible_devices_choose_and_order(visible: str, gpus: list[int], make: Make) -> None:
    # CUDA itself, too, makes these of it: else the start would fail.
    one = make({f"slow_model.{gpus[0]}": 1}, visible=visible, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    detail = one.call("discover")["detail"]
    assert f"4 GPUs, {len(gpus)} of them for this process; CUDA_VISIBLE_DEVICES={visible!r}" in detail
    kinds = [kind for kind, *_ in one.call("start")]
    assert kinds == ["NVIDIA Stand-in Lite", *[NAME] * (len(gpus) - 1)]
    assert ("CUDA ignores it from '9' on" in one.end()) is ("9" in visible)


@pytest.mark.parametrize(
    ("visible", "gpus"), [("0", [1]), ("1", [3]), ("0,1", [1, 3]), ("2", [0]), ("3,0", [2, 1]), (None, [1, 3, 0, 2])]
)
def test_numbers_among_different_gpus_are_taken_as_cuda_takes_them(
    visible: str | None, gpus: list[int], make: Make
) -> None:
    one = make({"slow_model.0": 1, "slow_model.2": 1}, visible=visible)
    assert [fingerprint for *_, fingerprint in one.call("start")] == list(map(uuid, gpus))
    assert one.end() == ""


@pytest.mark.parametrize(("visible", "gpus"), [(None, [2, 3]), ("0,1", [2, 3]), ("0", [2]), ("1", [3]), (uuid(2), [2])])
def test_with_mps_the_gpus_of_its_daemon_are_all_there_are(visible: str | None, gpus: list[int], make: Make) -> None:
    one = make({"mps": 1, "hidden.0": 1, "hidden.1": 1}, visible=visible)
    assert [fingerprint for *_, fingerprint in one.call("start")] == list(map(uuid, gpus))
    logged = one.end()
    if visible is None:
        assert "CUDA shows 2 GPUs of 4, those of the MPS daemon; left out are GPU 0 (" in logged
    else:
        assert logged == ""


@pytest.mark.parametrize(
    ("settings", "visible", "said"),
    [
        ({"hidden.1": 1}, None, f"missing are {named(1)}. Reset"),
        ({"hidden.1": 1}, uuid(0) + "," + uuid(1), f"missing are {named(1)}. Reset"),
        ({"hidden.3": 1}, "0,3", "it shows 1 of the 2 that CUDA_VISIBLE_DEVICES='0,3' names by number"),
    ],
)
def test_gpus_that_cuda_does_not_show_are_missed(
    settings: dict[str, int], visible: str | None, said: str, make: Make
) -> None:
    one = make(settings, visible=visible)
    error = one.call("start")
    assert said in error["text"]
    assert "by local_device_ids, or by CUDA_VISIBLE_DEVICES, with their UUIDs" in error["text"]
    assert "(CUDA_DEVICE_ORDER=PCI_BUS_ID)" in error["text"]


@pytest.mark.parametrize("visible", ["", "-1", "7", "0,0"])
def test_hidden_gpus_are_not_found(visible: str, make: Make) -> None:
    one = make(visible=visible)
    assert not one.call("discover")["present"]
    error = one.call("start")
    assert error["error"] == "DeviceNotFoundError"
    assert "client 0 has no GPU to use: NVIDIA driver 999.88.77, 4 GPUs, 0 of them for this process; " in error["text"]
    assert f"CUDA_VISIBLE_DEVICES={visible!r}" in error["text"]
    one.call("stop")


def test_local_device_ids_count_in_the_order_of_cuda(make: Make) -> None:
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    config = {"local_device_ids": [2, 1], "client_id": 5}
    one = make({"slow_model.0": 1}, config=config, visible="3,0,1", environment=order)
    assert one.call("start") == [
        ["NVIDIA Stand-in Lite", None, [0, 0, 5, 0], uuid(0)],
        [NAME, None, [1, 0, 5, 0], uuid(1)],
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"local_device_ids": [4]}, "local_device_ids=[4]: no such device: 4; client 0 (GPU) has 4 devices"),
        ({"num_logical_cpu_devices": 3}, "num_logical_cpu_devices=3 on client 0 is less than its number of GPUs (4)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(config: dict[str, Any], said: str, make: Make) -> None:
    one = make(config=config)
    error = one.call("start")
    assert error["error"] == "ConfigurationError"
    assert said in error["text"]
    one.call("stop")


SHARE = {"local_client_id": 1, "num_local_clients": 2}


@pytest.mark.parametrize(
    ("config", "visible", "common", "gpus"),
    [
        (SHARE, None, None, [2, 3]),
        (SHARE, "3,2,1,0", "3,2,1,0", [1, 0]),
        (SHARE | {"local_device_ids": [0, 1, 2]}, None, None, [0, 1, 2]),
        (SHARE, "1", None, [1]),
        (SHARE, "1", "1,2", [1]),
        (SHARE, "2,3,0", "0,1,2,3", [2, 3, 0]),
        ({"local_client_id": 0, "num_local_clients": 1}, None, None, [0, 1, 2, 3]),
        ({"local_client_id": 3, "num_local_clients": 4}, None, None, [3]),
    ],
    ids=["all", "the launcher's choice", "named", "its own", "its own for all", "more of its own", "alone", "one each"],
)
def test_clients_of_a_host_divide_what_all_of_them_see(
    config: dict[str, Any], visible: str | None, common: str | None, gpus: list[int], make: Make
) -> None:
    environment = {} if common is None else {"BRINGUP_HOST_CUDA_VISIBLE_DEVICES": common}
    one = make(config=config, visible=visible, environment=environment)
    assert [fingerprint for *_, fingerprint in one.call("start")] == list(map(uuid, gpus))


@pytest.mark.parametrize(("gpus", "count"), [(3, 2), (1, 2), (4, 8)])
def test_what_cannot_be_divided_among_the_clients_of_a_host_is_refused(gpus: int, count: int, make: Make) -> None:
    one = make({"gpus": gpus}, config={"client_id": 1, "local_client_id": 1, "num_local_clients": count})
    error = one.call("start")
    assert error["error"] == "ConfigurationError"
    assert f"client 1 (GPU) is one of {count} clients of its host (BRINGUP_NUM_LOCAL_CLIENTS={count})" in error["text"]
    assert f"that it sees, {gpus}, cannot be divided equally" in error["text"]
    assert "local_device_ids, or by CUDA_VISIBLE_DEVICES, set for each" in error["text"]


def test_locations_follow_nvlinks(make: Make) -> None:
    links = {f"links.{gpu}.{gpu ^ 2}": 4 for gpu in range(4)}
    one = make(links, config={"client_id": 1})
    detail = one.call("discover")["detail"]
    assert f"GPU 1: {NAME} ({uuid(1)}, PCI 0000:20:00.0, 80 GiB, 4 NVLinks to GPU 3)" in detail
    assert places(one.call("start")) == [[0, 0, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]]


def test_gpus_on_switches_are_one_row(make: Make) -> None:
    one = make({f"switches.{gpu}": 18 for gpu in range(8)} | {"gpus": 8})
    assert "80 GiB, 18 NVLinks to switches)" in one.call("discover")["detail"]
    assert places(one.call("start")) == [[x, 0, 0, 0] for x in range(8)]


def test_a_mig_device_is_what_cuda_makes_of_its_gpu(make: Make) -> None:
    one = make({"gpus": 2, "migs.1": 3})
    assert "MIG mode, with 3 MIG devices" in one.call("discover")["detail"]
    assert one.call("start") == [
        [NAME, None, [0, 0, 0, 0], uuid(0)],
        [f"{NAME} MIG 1g.10gb", None, [1, 0, 0, 0], uuid(1, 1)],
    ]
    one.set({"flip.1": 1})
    assert f"{NAME} MIG 1g.10gb ({uuid(1, 1)}) on {named(1)}: it gave wrong data" in one.call("check_health")["detail"]


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"gpus": 0}, "DeviceNotFoundError", "has no GPU to use: NVIDIA driver 999.88.77, 0 GPUs"),
        ({"init": 9}, "DeviceNotFoundError", "libnvidia-ml.so.1 gives error 9 (Driver Not Loaded)"),
        ({"init": 18}, "DeviceNotFoundError", "gives error 18 (RM has detected an NVML/RM version mismatch.)"),
        ({"count": 999}, "DeviceInitializationError", "the NVIDIA driver failed: Unknown Error"),
        ({"lost.2": 1}, "DeviceInitializationError", "not all GPUs can be used: GPU 2 does not answer: GPU is lost"),
        ({"cuinit": 802}, "DeviceInitializationError", "systemctl status nvidia-fabricmanager"),
        ({"cuinit": 803}, "DeviceInitializationError", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (an error of the stand-in)"),
        ({"hidden.1": 1}, "DeviceInitializationError", f"not show all GPUs that there are: missing are {named(1)}"),
        ({"stranger": 7}, "DeviceInitializationError", "devices that the management library does not know"),
        ({"retain.3": 2}, "DeviceInitializationError", f"{named(3)} did not come up: cuDevicePrimaryCtxRetain gave "),
        ({"cuda.0": 46}, "DeviceInitializationError", "compute mode EXCLUSIVE_PROCESS"),
        ({"flip.2": 1}, "DeviceInitializationError", f"{named(2)}: it gave wrong data: a pattern that was copied"),
        ({"unset.1": 1}, "DeviceInitializationError", "memory that it was to fill with one value has others in 4 of "),
    ],
)
def test_what_fails_at_start(settings: dict[str, int], error: str, said: str, make: Make) -> None:
    one = make(settings, config={"client_id": 2})
    one.call("discover")
    result = one.call("start")
    assert (result["error"], result["client_id"]) == (error, 2)
    assert said in result["text"]
    assert result["text"].startswith("client 2")
    one.call("stop")
    one.end()


def test_gpus_that_this_process_may_not_use_are_left_out(make: Make) -> None:
    one = make({"denied.1": 1, "hidden.1": 1})
    assert "3 GPUs, 3 of them for this process" in one.call("discover")["detail"]
    assert "GPU 1 may not be used by this process" in one.call("discover")["detail"]
    assert len(one.call("start")) == 3


def test_who_names_the_gpus_to_use_misses_no_other(make: Make) -> None:
    one = make({"hidden.3": 1}, config={"local_device_ids": [0, 1]})
    assert len(one.call("start")) == 2


@pytest.mark.parametrize(
    ("settings", "said", "permanent"),
    [
        ({"lost.1": 1}, f"{named(1)}: it has fallen off the bus", True),
        ({"fails.2": 16}, f"{named(2)}: it must be reset before it can be used again", True),
        ({"fails.2": 999}, f"{named(2)}: it does not answer the driver: Unknown Error", False),
        ({"gone.1": 1}, f"{named(1)}: it does not answer the driver: it is not there any more", False),
        ({"xid.0": 2079}, f"{named(2)}: the driver reported Xid 79 (the GPU has fallen off the bus)", True),
        ({"xid.0": 13, "xid.1": 3095}, f"{named(3)}: the driver reported Xid 95", True),
        ({"ecc.0": 7}, f"{named(0)}: its memory had 2 uncorrectable ECC errors since start", False),
        ({"remap_failed.3": 1}, f"{named(3)}: a broken row of its memory could not be remapped", True),
        ({"recovery.0": 2}, f"{named(0)}: its driver asks for an action: reboot the host", False),
        ({"down.0.3": 1}, f"{named(0)}: NVLinks 3 went down since start", False),
        ({"temperature.2": 99}, f"{named(2)}: it is at 99 C, and turns itself off at 95 C", False),
        ({"cuda.1": 700}, f"{named(1)}: it fails every call of CUDA in this process: cu", True),
        ({"cuda.1": 999}, f"{named(1)}: a call of CUDA failed: cu", False),
        ({"flip.3": 1}, f"{named(3)}: it gave wrong data", False),
    ],
)
def test_health_tells_what_goes_wrong(settings: dict[str, int], said: str, permanent: bool, make: Make) -> None:
    one = make({"ecc.0": 5, "links.0.1": 4, "links.1.0": 4})
    one.call("start")
    assert one.call("check_health")["ok"]
    one.set(settings)
    for _ in range(2):
        health = one.call("check_health")
        assert (health["ok"], health["permanent"]) == (False, permanent)
        assert said in health["detail"]
    one.call("stop")
    one.end()


@pytest.mark.parametrize(("visible", "gpus"), [(None, [1, 3, 0, 2]), ("3,0", [2, 1]), ("", []), (uuid(2), [2])])
def test_the_gpus_of_others_are_known_without_packages(
    visible: str | None, gpus: list[int], libraries: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("slow_model.0 1\nslow_model.2 1\n")
    environ = stand_in_environ(libraries, settings) | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    code = "from bringup.devices.jax.gpus import cuda_uuids; print(*cuda_uuids())"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(map(uuid, gpus))


def test_nothing_disturbs_the_capture_of_a_graph(make: Make) -> None:
    one = make({"capture": 1})
    assert len(one.call("start")) == 4
    for _ in range(3):
        assert one.call("check_health") == {"ok": True, "detail": "", "permanent": False}
    one.call("stop")
    assert one.misuse() == []
    assert one.end() == ""


@pytest.mark.parametrize("code", [*range(900, 909)])
def test_a_capture_that_is_in_the_way_is_no_defect(code: int, make: Make) -> None:
    one = make({"gpus": 1})
    one.call("start")
    one.set({"cuda.0": code})
    for _ in range(4):
        health = one.call("check_health")
        assert health["ok"]
        assert "captures a CUDA graph" in health["detail"]
    one.set({"cuda.0": 0})
    assert one.call("check_health") == {"ok": True, "detail": "", "permanent": False}


def test_an_error_that_passes_is_forgotten(make: Make) -> None:
    one = make({"gpus": 1})
    one.call("start")
    one.set({"cuda.0": 2})
    health = one.call("check_health")
    assert (health["ok"], health["permanent"]) == (False, False)
    one.set({"cuda.0": 0})
    assert one.call("check_health") == {"ok": True, "detail": "", "permanent": False}


def test_a_context_that_the_program_has_reset_is_left_alone(make: Make) -> None:
    one = make()
    one.call("start")
    one.call("check_health")
    one.set({"reset.2": 1})
    for _ in range(3):
        health = one.call("check_health")
        assert health["ok"]
        assert f"{named(2)}: the program has reset it" in health["detail"]
    one.set({"flip.2": 1, "flip.3": 1})
    assert "wrong data" in one.call("check_health")["detail"].split(named(3))[1].split(named(2))[0]
    one.call("stop")
    assert one.misuse() == []
    assert one.end().count("the program has reset it") == 1


def test_a_storm_of_xids_holds_nothing_up(make: Make) -> None:
    one = make({"gpus": 2, "xid.0": 1031, "storm": 1013})
    assert len(one.call("start")) == 2
    for _ in range(3):
        health = one.call("check_health")
        assert health["ok"]
        assert f"{named(1)}: the driver reported Xid 13 (a program's kernel" in health["detail"]
        assert health["detail"].count("Xid") == 2
    one.call("stop")
    assert one.end().count("Xid 13") == 1


@pytest.mark.parametrize("first", [{}, {"ecc.0": 9}])
def test_errors_that_start_could_not_count_are_not_counted_as_new(first: dict[str, int], make: Make) -> None:
    one = make({"gpus": 1} | first)
    one.call("start")
    one.set({"ecc.0": 7})
    assert one.call("check_health") == {"ok": True, "detail": "", "permanent": False}
    one.set({"ecc.0": 8})
    assert "had 1 uncorrectable ECC errors since start" in one.call("check_health")["detail"]


def test_a_session_that_another_library_has_ended_is_begun_again(make: Make) -> None:
    one = make({"xid.0": 31})
    one.call("start")
    for shutdowns in range(1, 4):
        one.set({"shutdowns": shutdowns, f"xid.{shutdowns}": shutdowns * 1000 + 31})
        health = one.call("check_health")
        assert health["ok"], health["detail"]
        assert f"{named(shutdowns)}: the driver reported Xid 31" in health["detail"]
    one.set({"shutdowns": 4, "init": 9})
    assert "does not answer the driver: Uninitialized" in one.call("check_health")["detail"]
    one.set({"init": 0})
    assert one.call("check_health")["ok"]
    one.call("stop")
    assert one.misuse() == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"xid.0": 1031}, f"{named(1)}: the driver reported Xid 31 (a program's kernel accessed memory"),
        ({"slowdown.2": 0x48}, f"{named(2)}: at 40 C, its hardware slows it down because of heat"),
        ({"temperature.2": 91}, f"{named(2)}: it is at 91 C, and slows down from 90 C on"),
        ({"remap_pending.0": 1}, f"{named(0)}: broken rows of its memory are remapped at its next reset"),
        ({"retired.3": 12, "retirement_pending.3": 1}, f"{named(3)}: broken pages of its memory (12) are retired"),
    ],
)
def test_health_logs_once_what_is_only_worth_a_word(settings: dict[str, int], said: str, make: Make) -> None:
    one = make()
    one.call("start")
    one.set(settings)
    for _ in range(3):
        health = one.call("check_health")
        assert health["ok"]
        assert said in health["detail"]
    assert one.end().count(said) == 1


def test_an_older_driver_that_knows_less_is_fine(make: Make) -> None:
    one = make({"no_mig": 1, "no_events": 1, "no_reasons": 1})
    assert len(one.call("start")) == 4
    assert one.call("check_health")["ok"]
