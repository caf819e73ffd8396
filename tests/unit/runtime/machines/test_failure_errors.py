"""The exceptions for users, made from the messages about a failure."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from bringup.errors import (
    CoordinatorLostError,
    DeviceError,
    DeviceFailedError,
    DeviceInitializationError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from bringup.runtime.machines.failure_errors import (
    coordinator_lost,
    goodbye_cause,
    name_clients,
    of_refusal,
    of_verdict,
    rendezvous_timeout,
)
from bringup.transport.wire.messages import Refused, Verdict

VERDICT = Verdict("PeerFailedError", 3, "h3:9000", "node-3", "merge", "process died (connection refused)", (), ())


def test_a_failure_names_client_host_address_phase_and_cause() -> None:
    error = of_verdict(VERDICT)
    assert type(error) is PeerFailedError
    assert (error.client_id, error.address, error.host) == (3, "h3:9000", "node-3")
    assert (error.phase, error.cause) == ("merge", "process died (connection refused)")
    assert "client 3 (node-3, h3:9000) failed in phase merge: process died" in str(error)


def test_those_that_failed_with_it_are_named() -> None:
    assert "failed with it: 1, 4-6" in str(of_verdict(replace(VERDICT, also=(1, 1, 4, 6))))


def test_an_error_that_is_nobodys_fault_is_the_same_for_all() -> None:
    error = of_verdict(replace(VERDICT, error="TopologyError", cause="core id 5 twice"))
    assert type(error) is TopologyError
    assert str(error) == "core id 5 twice"


def test_devices_that_end_a_job_are_an_error_of_devices_and_of_a_client() -> None:
    error = of_verdict(replace(VERDICT, error="DeviceFailedError", phase="ready", cause="ECC errors"))
    assert type(error) is DeviceFailedError
    assert isinstance(error, DeviceError)
    assert isinstance(error, PeerFailedError)
    assert (error.client_id, error.address, error.host) == (3, "h3:9000", "node-3")
    assert (error.phase, error.cause) == ("ready", "ECC errors")
    assert "the devices of client 3 (node-3, h3:9000) became unhealthy in phase ready, and " in str(error)
    assert "unhealthy_action='fail' there: ECC errors. " in str(error)
    duplicate = copy.copy(error)
    assert (str(duplicate), duplicate.client_id, duplicate.cause) == (str(error), 3, "ECC errors")


def test_an_error_of_a_later_version_is_a_failure_of_that_client() -> None:
    error = of_verdict(replace(VERDICT, error="QuotaError"))
    assert isinstance(error, PeerFailedError)


def test_a_refusal_says_both_sides_values() -> None:
    error = of_refusal(Refused("num_clients", "5", "4", "Look at the jobs."), 2, "h0:9000")
    assert type(error) is RegistrationRefusedError
    assert (error.field, error.ours, error.theirs) == ("num_clients", "5", "4")
    for part in ("h0:9000", "client 2", "num_clients is 5 here and 4 there", "Look at the jobs."):
        assert part in str(error)


@pytest.mark.parametrize(("host", "shown"), [("node-0", "node-0"), ("", "h0:9000")])
def test_a_lost_coordinator_is_client_0(host: str, shown: str) -> None:
    error = coordinator_lost("h0:9000", host, "ready", "no heartbeat for 10.0 s")
    assert type(error) is CoordinatorLostError
    assert (error.client_id, error.address, error.phase) == (0, "h0:9000", "ready")
    assert f"client 0 ({shown})" in str(error)


@pytest.mark.parametrize(("came", "words"), [(False, "did not come"), (True, "were not ready")])
def test_a_timeout_names_the_missing_and_the_present(came: bool, words: str) -> None:
    missing, present = {1: "h1:9000", 3: "h3:9000"}, {0: "h0:9000", 2: "h2:9000"}
    error = rendezvous_timeout(4, 30.0, missing, present, "a reason", more_missing=0, more_present=0, came=came)
    assert type(error) is RendezvousTimeoutError
    assert (error.missing, error.present) == (missing, present)
    for part in (f"2 of 4 clients {words}", "=30 s", "client 1 (h1:9000), client 3 (h3:9000)", "(a reason)", "0, 2"):
        assert part in str(error)


def test_of_very_many_a_timeout_tells_how_many_more_there_are() -> None:
    missing, present = {1: "h1:9000", 3: "h3:9000"}, {0: "h0:9000", 2: "h2:9000"}
    error = rendezvous_timeout(100, 30.0, missing, present, "", more_missing=37, more_present=59, came=False)
    text = "39 of 100 clients did not come within initialization_timeout=30 s: clients 1, 3 and 37 more. Present: "
    assert str(error).startswith(f"{text}clients 0, 2 and 59 more. ")


def test_of_very_many_that_failed_together_a_text_tells_how_many_more_there_are() -> None:
    error = of_verdict(replace(VERDICT, also=(5, 6), num_also=39))
    assert "Clients that failed with it: 5-6 and 37 more. " in str(error)


@pytest.mark.parametrize(
    ("addresses", "text"),
    [
        ({4: "h4:1"}, "client 4 (h4:1)"),
        ({5: "h5:1", 4: "h4:1"}, "client 4 (h4:1), client 5 (h5:1)"),
        ({4: ""}, "client 4"),
        ({4: "", 5: "h5:1"}, "clients 4-5"),
        (dict.fromkeys(range(9), "h:1"), "clients 0-8"),
    ],
)
def test_clients_are_named_with_addresses_while_they_are_few(addresses: dict[int, str], text: str) -> None:
    assert name_clients(addresses) == text


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyboardInterrupt(), "it was interrupted (Ctrl-C)"),
        (ValueError("a bug"), "a bug"),
        (
            DeviceInitializationError("the GPU of client 2 did not start: no driver"),
            "the GPU of client 2 did not start",
        ),
        (PeerFailedError("a long text", client_id=1, cause="process died"), "process died"),
    ],
)
def test_a_goodbye_says_why(error: BaseException, cause: str) -> None:
    assert goodbye_cause(error).startswith(cause)
