"""Refused plans: jobs open to the network by mistake, or with addresses that mean another machine everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.plan import Plan, make_plan
from bringup.runtime.configuration.request import Request

HERE = "127.0.0.1:9000,127.0.0.1:9001"
APART = "node-0:9000,node-1:9000"


def plan(jobs: str, environ: dict[str, str] | None = None, **options: Any) -> Plan:
    return make_plan(Request("SIM", jobs=jobs, client_id=0, overrides=options), environ or {})


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "[::]", "10.0.0.7", "node-0"])
def test_a_job_of_this_machine_does_not_listen_to_the_network(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bind_address=.*opens the ports.*Leave.*insecure=True") as caught:
        plan(HERE, bind_address=address)
    assert address.strip("[]") in str(caught.value)
    with pytest.raises(ConfigurationError, match="BRINGUP_BIND_ADDRESS"):
        plan(HERE, {"BRINGUP_BIND_ADDRESS": address})
    assert plan(HERE, bind_address=address, insecure=True)
    assert plan("127.0.0.1:9000", bind_address=address), "one client opens no port"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.5", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"])
def test_a_job_of_this_machine_may_choose_where_on_it_to_listen(address: str) -> None:
    assert plan(HERE, bind_address=address)


def test_one_client_leaves_no_machine_whatever_its_address() -> None:
    assert plan("node-0:9000").job.is_alone
    with pytest.raises(ConfigurationError, match="insecure=True"):
        plan(APART)


@pytest.mark.parametrize("jobs", ["localhost:9000,node-1:9000", "node-0:9000,127.0.1.1:9000", "node-0:1,[::1]:1"])
def test_an_address_that_means_another_machine_on_every_host_is_refused(jobs: str) -> None:
    with pytest.raises(ConfigurationError, match=r"means this machine on every host.*give the address"):
        plan(jobs, insecure=True)


def test_no_client_advertises_loopback_to_other_hosts() -> None:
    with pytest.raises(ConfigurationError, match=r"advertise_address='127.0.0.1'.*on every host"):
        plan(APART, insecure=True, advertise_address="127.0.0.1")
    assert plan(HERE, advertise_address="127.0.0.1")


def test_no_backend_gets_the_token() -> None:
    made = make_plan(Request("SIM", overrides={"token": None}), {"BRINGUP_TOKEN": "5ec4e7" * 10 + "5ec4", "OTHER": "1"})
    assert "5ec4e7" not in repr(made)
    assert dict(made.backend.environment) == {"OTHER": "1"}
