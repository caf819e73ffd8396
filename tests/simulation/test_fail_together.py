"""The news of one client's death, in a large job: through the groups, and by client 0 alone."""

from __future__ import annotations

from bringup.runtime.drivers.coordinator import TOLD_AT_ONCE
from bringup.runtime.machines.groups import group_size_of

from . import costs
from .fail_together import CLUSTER, tell_survivors

PEERS = 2000
VICTIM = 666
PROBED = 0.022
"""Seconds until the verdict: the client is asked, and others that died with it are waited for."""


def test_the_last_survivor_is_told_through_the_groups() -> None:
    """Within the hops of one group, once all leaders are told. By client 0 alone it takes a message to each client."""
    group = group_size_of(PEERS)
    told = tell_survivors(PEERS, group, VICTIM)
    assert told.judged < PROBED
    hops = 2 * group * (costs.LINK_MESSAGE + CLUSTER.worst)
    assert told.last - told.judged < PEERS // group * 2 * costs.MESSAGE + hops
    turns = 4 * TOLD_AT_ONCE * costs.MESSAGE
    assert told.host - told.judged < turns, "the program of client 0 hears of it with the first"
    alone = tell_survivors(PEERS, 0, VICTIM)
    assert alone.last - alone.judged > 0.8 * PEERS * costs.MESSAGE
    assert told.last - told.judged < 0.25 * (alone.last - alone.judged)
