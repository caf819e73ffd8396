"""The waves of a group, and the heartbeats that its clients need not send."""

from __future__ import annotations

from bringup.runtime.machines.peer.coordinator_watch import CoordinatorWatch
from bringup.runtime.machines.peer.group_watch import GroupWatch, with_mark
from bringup.runtime.machines.peer.heartbeats import Heartbeats
from bringup.runtime.machines.peer.job_view import JobView
from bringup.runtime.machines.phases import Phase
from bringup.transport.wire.messages import Beat, GroupPlace, GroupReport, HeartbeatAck, MemberUpdate, StepMark

from .....lib.peer_configs import peer_config

N = 8
PLACE = GroupPlace(1, 2, 4, 7)
NOWHERE = (-1, -1.0, 0.0)


class Client:
    """One client of the second of two groups, from when its links stand."""

    def __init__(self, client_id: int) -> None:
        config = peer_config(N, client_id=client_id)
        self.heartbeats = Heartbeats(0.25)
        self.coordinator = CoordinatorWatch(config, 0.0)
        self.view = JobView(config, 0.0)
        self.heartbeats.begin(0.0)
        self.group = GroupWatch(PLACE, config, self.heartbeats, self.coordinator, self.view, 0.0)

    @property
    def due(self) -> float:
        assert self.heartbeats.sent_at is not None
        return self.group.heartbeat_due(self.heartbeats.sent_at)

    def send(self, now: float) -> tuple[GroupReport, ...]:
        self.heartbeats.send(Phase.READY, now)
        self.coordinator.sent(now)
        return self.group.report(now)

    def take(self, beat: Beat, now: float) -> Beat | None:
        return self.group.take(beat, NOWHERE, now)


def test_the_leader_reports_as_soon_as_the_wave_is_back_that_its_group_was_alive() -> None:
    leader = Client(4)
    assert leader.group.wave_due() == 0.0
    leader.group.told_when(0.5, 0.0)
    assert leader.group.wave_due() == 0.5
    beat = leader.group.begin((7, 2.0, 1.0), 0.5)
    assert leader.due == 1.0, "it waits half an interval"
    assert leader.take(beat, 0.6) is None
    assert leader.due == 0.6
    [report] = leader.send(0.625)
    assert report == GroupReport(0.125, (StepMark(4, 7, 2.0, 1.0),), (StepMark(4, 7, 2.0, 1.0),))
    assert leader.group.wave_due() == 1.5
    assert leader.due == 2.0
    assert leader.send(0.7) == (), "of each wave once"


def test_a_leader_begins_its_waves_when_the_coordinator_has_all_begin() -> None:
    leader = Client(4)
    for began, told_at, wave_in, due in ((0.0, 0.25, 0.5, 0.75), (0.75, 1.0, 0.75, 1.75), (1.75, 2.5, 9.0, 3.5)):
        leader.group.begin(NOWHERE, began)
        leader.group.told_when(0.0, told_at)
        assert leader.group.wave_due() == began + 1.0, "it was not said when"
        leader.group.told_when(wave_in, told_at)
        assert leader.group.wave_due() == due, "in an interval at the latest"


def test_a_leader_whose_wave_does_not_come_around_sends_heartbeats_without_a_report() -> None:
    leader = Client(4)
    leader.group.told_when(0.5, 0.0)
    late = leader.group.begin(NOWHERE, 0.5)
    assert leader.send(1.0) == ()
    again = leader.group.begin(NOWHERE, 1.5)
    assert again.complete_age == -1.0
    leader.take(late, 1.75)
    assert leader.send(2.0) == (GroupReport(1.5),), "it was begun so long ago"
    assert leader.group.begin(NOWHERE, 2.5).complete_age == 2.0
    leader.take(late, 2.6)
    assert leader.send(3.0) == (), "it is known"


def test_a_leader_that_did_not_run_begins_one_wave() -> None:
    leader = Client(4)
    leader.group.begin(NOWHERE, 0.0)
    leader.group.begin(NOWHERE, 9.25)
    assert leader.group.wave_due() == 10.25


def test_a_client_is_silent_while_waves_come_around_but_for_tests_of_its_connection() -> None:
    client = Client(6)
    assert client.group.wave_due() is None
    for second in range(1, 15):
        passed_on = client.take(Beat(second, 0.5, 1.0, answered_age=0.5), float(second))
        assert passed_on is not None
        assert client.due == min(15.0, second + 2.5)
    client.send(15.0)
    client.coordinator.heard(15.0)
    assert client.take(Beat(16, 0.5, 1.0, answered_age=0.5), 34.0) is not None
    assert client.due == 35.0, "every 20 s, each client at another time"
    assert client.take(Beat(17, 0.5, 1.0, answered_age=0.5), 34.75) is not None
    assert client.due == 35.75, "with the next wave"


def test_a_client_that_misses_waves_sends_heartbeats_itself() -> None:
    client = Client(6)
    client.take(Beat(1, 0.5, 1.0), 1.0)
    assert client.due == 3.5
    client.send(3.5)
    assert client.due == 4.5
    client.take(Beat(2, 0.5, 1.0), 4.25)
    assert client.due == 6.75, "they are whole again"


def test_a_client_that_hears_that_no_wave_came_around_sends_heartbeats_itself_from_then_on() -> None:
    client = Client(6)
    client.take(Beat(1, 0.5, -1.0), 1.0)
    assert client.due == 3.5, "none can have come around yet"
    client.take(Beat(2, 0.5, 2.0), 2.0)
    assert client.due == 4.5
    client.take(Beat(3, 0.5, 3.0), 3.0)
    assert client.due == 3.0, "at once, and not earlier"
    client.send(3.0)
    assert client.due == 4.0


def test_a_client_that_is_not_answered_though_the_leader_is_passes_no_wave_on() -> None:
    client = Client(6)
    client.coordinator.awake(0.0)
    client.send(1.0)
    assert client.take(Beat(1, 0.25, 1.0, answered_age=0.5), 3.75) is not None, (
        "the leader asked later, and not by much"
    )
    assert client.take(Beat(2, 0.25, 1.0, answered_age=0.25), 4.0) is None
    assert client.due == 4.0
    client.coordinator.heard(5.0)
    assert client.take(Beat(3, 0.25, 1.0, answered_age=0.25), 5.0) is not None


def test_a_client_of_a_starved_coordinator_passes_waves_on() -> None:
    """The leader is not answered either: the heartbeats of all clients would not help."""
    client = Client(6)
    client.coordinator.awake(0.0)
    client.send(1.0)
    for second in range(2, 60):
        client.coordinator.awake(float(second))
        assert client.take(Beat(second, 0.5, 1.0, answered_age=second + 1.0), float(second)) is not None
        assert client.coordinator.silence(second) == "", "its process answers the leader"


def test_a_client_loses_the_coordinator_with_its_leader() -> None:
    client = Client(6)
    client.coordinator.awake(0.0)
    for second in range(2, 12):
        client.coordinator.awake(float(second))
        client.take(Beat(second, second - 1.0, 1.0, answered_age=second - 1.0), float(second))
        assert client.coordinator.silence(second) == ""
    assert client.coordinator.ask_due() == 11.0, "it asks once itself"
    client.coordinator.awake(12.0)
    assert client.coordinator.silence(12.0) == "no heartbeat for 10.0 s"


def test_a_client_that_loses_its_leader_gives_the_coordinator_the_whole_timeout() -> None:
    """The leader had an answer to each heartbeat, of which the wave after the next would have told."""
    client = Client(6)
    client.coordinator.awake(0.0)
    for second in range(1, 15):
        client.coordinator.awake(float(second))
        if second < 5:
            client.take(Beat(second, 1.0, 1.0, answered_age=1.0), float(second))
        elif client.due <= second:
            client.send(float(second))
    assert client.coordinator.silence(14.9) == ""
    client.coordinator.awake(15.0)
    assert client.coordinator.silence(15.0) == "no heartbeat for 10.0 s"


def test_a_leader_that_was_not_answered_vouches_for_nothing() -> None:
    client = Client(6)
    client.coordinator.awake(0.0)
    for second in range(1, 14):
        client.coordinator.awake(float(second))
        if second < 5:
            client.take(Beat(second, second - 0.5, 1.0, answered_age=second - 0.5), float(second))
        elif client.due <= second:
            client.send(float(second))
    assert client.coordinator.silence(11.4) == ""
    assert client.coordinator.silence(11.5) == "no heartbeat for 10.0 s"


def test_news_goes_around_and_whoever_misses_some_asks_the_coordinator() -> None:
    leader, client = Client(4), Client(6)
    leader.coordinator.awake(0.0)
    ill = MemberUpdate(5, False, "hot")
    leader.group.told_when(0.5, 0.0)
    leader.heartbeats.send(Phase.READY, 0.25)
    leader.heartbeats.answered(1)
    leader.view.acknowledge(HeartbeatAck(1, (), (), (ill,), news=3), 0.375)
    first = leader.group.begin(NOWHERE, 0.5)
    assert (first.since, first.news, first.updates) == (0, 3, (ill,))
    second = leader.group.begin(NOWHERE, 1.5)
    assert (second.since, second.news, second.updates) == (3, 3, ())
    client.take(first, 0.5)
    assert client.view.seen == 3
    assert not client.view.state_of(5).healthy
    assert client.view.updated_at == 0.25

    other = Client(7)
    other.take(second, 1.5)
    assert other.view.seen == 0
    assert other.due == 1.5


def test_a_wave_tells_who_is_furthest_behind_and_who_is_busiest_and_who_is_ahead() -> None:
    beat = Beat(1, 0.0, 0.0)
    for client_id in range(20):
        busy = 9.0 if client_id == 18 else 1.0
        beat = with_mark(beat, StepMark(client_id, 100 - client_id if client_id < 10 else client_id, 1.0, busy))
    assert [mark.client_id for mark in beat.steps] == [*range(10, 18), 18, 19, 9, 8, 7, 6, 5, 4]
    beat = with_mark(beat, StepMark(30, 200, 1.0, 10.0))
    assert beat.steps[-1] == StepMark(30, 200, 1.0, 10.0)
    assert beat.front == (StepMark(30, 200, 1.0, 10.0),)
