"""The environment of a client that the launcher starts."""

from __future__ import annotations

from bringup.runtime.configuration.client_environment import IDENTITY, client_environment, free_addresses
from bringup.runtime.configuration.environment import DTensorFamily, JaxFamily, KerasFamily, _Family
from bringup.runtime.configuration.resolve import resolve_job

FOREIGN: tuple[_Family, ...] = (DTensorFamily(), KerasFamily(), JaxFamily())


def test_addresses_are_free_loopback_ports_all_different() -> None:
    addresses = free_addresses(64)
    assert len(set(addresses)) == 64
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_a_client_resolves_to_its_place_in_the_job() -> None:
    addresses = ("127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002")
    spec = resolve_job(environ=client_environment({"HOME": "/root"}, addresses, 1))
    assert (spec.source, spec.jobs, spec.client_id, spec.num_clients) == ("BRINGUP_*", addresses, 1, 3)


def test_variables_of_the_job_that_this_process_is_in_are_not_handed_on() -> None:
    own = ("BRINGUP_JOBS", "BRINGUP_CLIENT_ID", "BRINGUP_NUM_CLIENTS", "BRINGUP_LOCAL_CLIENT_ID")
    outer = dict.fromkeys((*IDENTITY, *own, "BRINGUP_HOST_CUDA_VISIBLE_DEVICES"), "outer")
    environ = client_environment(outer | {"BRINGUP_INSECURE": "0", "PATH": "/bin"}, ("127.0.0.1:9000",), 0)
    assert environ == {
        "BRINGUP_JOBS": "127.0.0.1:9000",
        "BRINGUP_CLIENT_ID": "0",
        "BRINGUP_NUM_CLIENTS": "1",
        "BRINGUP_LOCAL_CLIENT_ID": "0",
        "BRINGUP_NUM_LOCAL_CLIENTS": "1",
        "BRINGUP_INSECURE": "0",
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
    }


def test_a_client_is_told_which_one_of_its_host_it_is() -> None:
    spec = resolve_job(environ=client_environment({}, ("127.0.0.1:9000", "127.0.0.1:9001"), 1))
    assert (spec.local_client_id, spec.num_local_clients) == (1, 2)


def test_a_client_is_told_what_all_are_shown() -> None:
    environ = client_environment({"CUDA_VISIBLE_DEVICES": "4,5"}, ("127.0.0.1:9000",), 0)
    assert environ["CUDA_VISIBLE_DEVICES"] == environ["BRINGUP_HOST_CUDA_VISIBLE_DEVICES"] == "4,5"


def test_every_variable_by_which_another_family_is_recognised_is_removed() -> None:
    recognised = {name for family in FOREIGN for name in (*family.identifying(), family.job_name) if name}
    assert recognised <= set(IDENTITY)
