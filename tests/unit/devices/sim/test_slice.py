"""The shape of a simulated slice, its split over clients, and its core ids."""

from __future__ import annotations

import pytest

from bringup.devices.base import BackendConfig, CoreLocation
from bringup.devices.sim.faults import SimFaults, SimSettings
from bringup.devices.sim.slice import SimSlice, SliceShape, default_shape
from bringup.errors import ConfigurationError

# First chip of each host, as libtpu describes real slices.
V3_4X4 = [(0, 0, 0), (2, 0, 0), (0, 2, 0), (2, 2, 0)]
V4_2X4X4 = [(0, 0, 0), (0, 2, 0), (0, 0, 1), (0, 2, 1), (0, 0, 2), (0, 2, 2), (0, 0, 3), (0, 2, 3)]


def every_split() -> list[tuple[str, int]]:
    shapes = ["1x1", "1x1x1x2", "2x1", "3x1", "2x3", "6x1", "4x4x1x2", "8x8", "5x5x1x2", "7x3x2x2", "4x4x4x2"]
    return [
        (text, clients)
        for text in shapes
        for chips in [SliceShape.parse(text).num_chips]
        for clients in range(1, chips + 1)
        if chips % clients == 0
    ]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("4x4x1x2", SliceShape(4, 4, 1, 2)),
        ("4x4x4", SliceShape(4, 4, 4, 1)),
        ("8x16", SliceShape(8, 16, 1, 1)),
        (" 2X2x1X1 ", SliceShape(2, 2, 1, 1)),
    ],
)
def test_shapes_parse(text: str, shape: SliceShape) -> None:
    assert SliceShape.parse(text) == shape


@pytest.mark.parametrize(
    "text",
    [
        "4",
        "4x",
        "x4",
        "4x4x1x2x1",
        "4x-4",
        "4x4.0",
        "4*4",
        "axb",
        "٤x٤",
        "0x4",
        "4x4x1x0",
        "99999x99999",
        "4x4x1x3",
        "1x99999999999",
    ],
)
def test_malformed_shapes_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="XxYxZxC") as caught:
        SliceShape.parse(text)
    assert f"BRINGUP_SIM_TOPOLOGY={text!r}" in str(caught.value)


def test_shape_writes_itself_so_that_it_parses_again() -> None:
    assert str(SliceShape.parse("8x4")) == "8x4x1x1"


@pytest.mark.parametrize(
    ("clients", "shape"),
    [
        (1, "2x2x1x2"),
        (2, "4x2x1x2"),
        (3, "6x2x1x2"),
        (4, "4x4x1x2"),
        (8, "8x4x1x2"),
        (16, "8x8x1x2"),
        (64, "16x16x1x2"),
    ],
)
def test_default_shape_has_one_host_block_for_each_client(clients: int, shape: str) -> None:
    assert str(default_shape(clients)) == shape
    assert default_shape(clients).num_blocks == clients


@pytest.mark.parametrize(("text", "hosts"), [("4x4x1x2", V3_4X4), ("2x4x4x2", V4_2X4X4)])
def test_host_blocks_are_numbered_as_on_real_slices(text: str, hosts: list[tuple[int, int, int]]) -> None:
    part = SimSlice(SliceShape.parse(text), len(hosts))
    assert [part.locations(client)[0][:3] for client in range(len(hosts))] == hosts


def test_devices_of_a_host_are_ordered_as_on_real_slices() -> None:
    part = SimSlice(SliceShape.parse("4x4x1x2"), 4)
    assert part.locations(1) == (
        CoreLocation(2, 0, 0, 0),
        CoreLocation(2, 0, 0, 1),
        CoreLocation(3, 0, 0, 0),
        CoreLocation(3, 0, 0, 1),
        CoreLocation(2, 1, 0, 0),
        CoreLocation(2, 1, 0, 1),
        CoreLocation(3, 1, 0, 0),
        CoreLocation(3, 1, 0, 1),
    )


def test_other_numbers_of_clients_get_equal_runs_of_chips() -> None:
    part = SimSlice(SliceShape.parse("2x2x2"), 4)
    assert [[tuple(location) for location in part.locations(client)] for client in range(4)] == [
        [(0, 0, 0, 0), (1, 0, 0, 0)],
        [(0, 1, 0, 0), (1, 1, 0, 0)],
        [(0, 0, 1, 0), (1, 0, 1, 0)],
        [(0, 1, 1, 0), (1, 1, 1, 0)],
    ]


def test_odd_sizes_have_no_host_blocks() -> None:
    assert SliceShape.parse("3x4").num_blocks == 0
    assert SliceShape.parse("4x4x3").num_blocks == 12


def test_a_shape_that_does_not_divide_names_both_numbers() -> None:
    with pytest.raises(ConfigurationError, match="32 chips do not divide over 5 clients"):
        SimSlice(SliceShape.parse("8x4x1x2"), 5)


@pytest.mark.parametrize(("text", "clients"), every_split())
def test_every_core_belongs_to_one_client(text: str, clients: int) -> None:
    part = SimSlice(SliceShape.parse(text), clients)
    locations = [location for client in range(clients) for location in part.locations(client)]
    assert len(locations) == len(set(locations)) == part.num_devices == part.shape.num_cores
    assert all(len(part.locations(client)) == part.devices_per_client for client in range(clients))


@pytest.mark.parametrize(("text", "clients"), every_split())
def test_core_ids_are_a_permutation_that_a_wrong_merge_cannot_hide(text: str, clients: int) -> None:
    part = SimSlice(SliceShape.parse(text), clients)
    ids = [part.core_ids(client) for client in range(clients)]
    merged = [id_ for own in ids for id_ in own]
    assert sorted(merged) == list(range(part.num_devices))
    if part.num_devices > 1:
        assert merged != sorted(merged)
    if part.devices_per_client > 1:
        assert all(list(own) != sorted(own) for own in ids)


def test_core_ids_of_a_client_are_spread_over_the_range() -> None:
    ids = SimSlice(default_shape(64), 64).core_ids(5)
    assert max(ids) - min(ids) > 256


def test_megacore_makes_one_device_of_a_chip_with_twice_its_id() -> None:
    part = SimSlice(SliceShape.parse("4x4x1x2"), 4, megacore=True)
    assert part.num_devices == 16
    assert {location.core for location in part.locations(0)} == {0}
    assert sorted(id_ for client in range(4) for id_ in part.core_ids(client)) == list(range(0, 32, 2))


def test_megacore_is_refused_where_chips_have_one_core() -> None:
    with pytest.raises(ConfigurationError, match="enable_megacore"):
        SimSlice(SliceShape.parse("4x4"), 4, megacore=True)


def parse_faults(text: str, client_id: int = 1) -> SimFaults:
    return SimFaults.parse(text, client_id=client_id, num_clients=4)


def test_faults_concern_the_client_they_name() -> None:
    text = "1:raise:no power: sorry, 2:hang,*:slow:0.5,1:unhealthy,"
    assert parse_faults(text) == SimFaults(failure="no power: sorry", slow=0.5, unhealthy="simulated defect")
    assert parse_faults(text, 2) == SimFaults(hang=True, slow=0.5)
    assert parse_faults("") == SimFaults()


def test_faults_without_argument_are_flags() -> None:
    assert parse_faults("1:duplicate,1:missing,1:shifted") == SimFaults(duplicate=True, missing=1, shifted=True)
    assert parse_faults("1:wrong,1:crash,1:flap") == SimFaults(wrong=-1, crash="SEGV", flap=1)
    assert parse_faults("1:raise").failure == "simulated failure"


def test_faults_with_arguments_have_them() -> None:
    text = "1:wrong:-7,1:crash:sigbus,1:flap:3,1:missing:2,1:stuck:0.5,1:gil:2,1:degrade:1e3:too: hot"
    assert parse_faults(text) == SimFaults(
        wrong=-7, crash="BUS", flap=3, missing=2, stuck=0.5, gil=2.0, degraded=(1000.0, "too: hot")
    )
    assert parse_faults("1:flap:3,1:flap:2").flap == 2


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("hang", "'hang' is neither a client id nor"),
        ("-1:hang", "'-1' is neither"),
        ("1", "'' is not a kind"),
        ("1:melt", "'melt' is not a kind"),
        ("4:hang", "the job has no client 4"),
        ("1:hang:3", "hang takes no argument"),
        ("1:slow", "'' is no duration"),
        ("1:slow:soon", "'soon' is no duration"),
        ("1:slow:-1", "'-1' is no duration"),
        ("1:slow:nan", "'nan' is no duration"),
        ("1:slow:inf", "'inf' is no duration"),
        ("1:gil:", "'' is no duration"),
        ("1:stuck", "'' is no duration"),
        ("1:degrade:hot", "'hot' is no duration"),
        ("1:flap:0", "'0' is no number from 1"),
        ("1:flap:x", "'x' is no number from 1"),
        ("1:missing:-1", "'-1' is no number from 1"),
        ("1:missing:9999999", "'9999999' is no number from 1 to 1000000"),
        ("1:wrong:x", "'x' is no whole number"),
        ("1:crash:TERM", "'TERM' is none of SEGV, ABRT"),
    ],
)
def test_malformed_faults_are_refused_on_every_client(item: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_faults(f"0:missing,{item}", client_id=3)
    message = str(caught.value)
    assert reason in message
    assert "BRINGUP_SIM_FAULT" in message
    assert repr(item) in message


def test_faults_between_clients_need_another_client() -> None:
    for kind in ("duplicate", "shifted"):
        with pytest.raises(ConfigurationError, match="another client"):
            SimFaults.parse(f"0:{kind}", client_id=0, num_clients=1)


def test_settings_have_defaults_and_take_empty_for_unset() -> None:
    empty = {"BRINGUP_SIM_TOPOLOGY": "", "BRINGUP_SIM_START_SECONDS": " ", "BRINGUP_SIM_FAULT": ""}
    settings = SimSettings.parse(BackendConfig(num_clients=4, environment=empty))
    assert settings == SimSettings.parse(BackendConfig(num_clients=4))
    assert settings == SimSettings(SimSlice(SliceShape(4, 4, 1, 2), 4), 0.0, SimFaults())


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9"])
def test_malformed_start_seconds_are_refused(text: str) -> None:
    config = BackendConfig(environment={"BRINGUP_SIM_START_SECONDS": text})
    with pytest.raises(ConfigurationError, match="BRINGUP_SIM_START_SECONDS") as caught:
        SimSettings.parse(config)
    assert repr(text) in str(caught.value)
