"""When a client fails, every other one hears of it: who, why, and in time."""

from __future__ import annotations

import pytest

from bringup.errors import (
    BringupError,
    CoordinatorLostError,
    DeviceInitializationError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from bringup.runtime.machines.phases import Phase

from .costs import slack
from .network import DELAY_MAX
from .process import Process
from .world import World

SEEDS = range(15)
FEWER_SEEDS = range(6)
"""For each phase of the bring-up."""
N = 12
VICTIM = 5
ROUND_TRIP = 2 * DELAY_MAX + slack(N)


def errors_of(world: World, kind: type[BringupError], *, but: tuple[int, ...] = ()) -> list[BringupError]:
    """Return what all clients but some raised, and check that all did, and all of one kind."""
    errors: list[BringupError] = []
    for process in world.processes:
        if process.client_id in but:
            continue
        assert process.failed is not None, f"{process.name} was not told"
        error = process.failed[1]
        assert type(error) is kind, f"{process.name} raised {error!r}"
        errors.append(error)
    return errors


def assert_all_blame(world: World, client_id: int, cause: str, *, but: tuple[int, ...] = ()) -> None:
    for error in errors_of(world, PeerFailedError, but=(client_id, *but)):
        assert isinstance(error, PeerFailedError)
        assert error.client_id == client_id
        assert cause in error.cause
        assert f"client {client_id} " in str(error)


def last_told(world: World, *, but: int) -> float:
    return max(process.failed[0] for process in world.processes if process.client_id != but and process.failed)


def run_into(world: World, victim: int, phase: Phase) -> Process:
    """Start all clients, and let one come into a phase. In the rendezvous, client 1 is 20 s late."""
    absent = (1,) if phase is Phase.RENDEZVOUS else ()
    processes = world.start_all(within=0.05, absent=absent)
    process = next(process for process in processes if process.client_id == victim)
    reached: list[Phase] = []
    process.on_phase(phase, lambda: reached.append(phase))
    if phase is Phase.RENDEZVOUS:
        world.run(until=world.rng.uniform(5.0, 15.0))
        return process
    if phase is Phase.DEVICES:
        process.backend_seconds = 20.0
    if phase is Phase.READY:
        world.settle(limit=60.0)
        return process
    if phase is Phase.LEAVING:
        world.settle(limit=60.0)
        process.wish_leave()
        return process
    world.run_until(lambda: bool(reached), limit=60.0)
    return process


IN_BRING_UP = [Phase.RENDEZVOUS, Phase.DEVICES, Phase.RING, Phase.MERGE, Phase.COMMIT, Phase.READY]


@pytest.mark.parametrize("missing", [(7,), (0,), (1, 2, 11), tuple(range(1, N))])
@pytest.mark.parametrize("seed", SEEDS)
def test_missing_clients_are_named_at_the_deadline(seed: int, missing: tuple[int, ...]) -> None:
    with World(seed, N, initialization_timeout=30.0) as world:
        processes = world.start_all(within=10.0, absent=missing)
        world.run(until=60.0)
        first = min(process.began for process in processes) + 30.0
        for error in errors_of(world, RendezvousTimeoutError):
            assert isinstance(error, RendezvousTimeoutError)
            assert tuple(sorted(error.missing)) == ((0,) if 0 in missing else missing)
            assert len(missing) > 8 or f"host-{missing[0]}:10000" in str(error)
        for process in processes:
            assert process.failed is not None
            told_at = process.failed[0]
            assert first <= told_at <= process.began + 30.0 + world.patience
            if 0 not in missing:
                assert told_at <= first + world.patience + ROUND_TRIP


@pytest.mark.parametrize("seed", SEEDS)
def test_a_device_that_hangs_is_waited_for_until_the_deadline(seed: int) -> None:
    with World(seed, N, initialization_timeout=30.0) as world:
        for process in world.start_all(within=1.0):
            process.backend_seconds = None if process.client_id == VICTIM else 0.1
        world.run(until=60.0)
        errors = errors_of(world, RendezvousTimeoutError)
        for error in errors:
            assert isinstance(error, RendezvousTimeoutError)
            assert list(error.missing) == [VICTIM]
        assert any("devices" in str(error) for error in errors)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_backend_that_fails_is_told_within_a_round_trip(seed: int) -> None:
    with World(seed, N) as world:
        for process in world.start_all(within=0.1):
            process.backend_seconds = world.rng.uniform(1.0, 3.0)
            process.backend_error = "no such chip" if process.client_id == VICTIM else None
        world.settle(limit=5.0)
        victim = next(process for process in world.processes if process.client_id == VICTIM)
        assert victim.failed is not None
        assert isinstance(victim.failed[1], DeviceInitializationError)
        assert_all_blame(world, VICTIM, "DeviceInitializationError: no such chip")
        assert last_told(world, but=VICTIM) <= victim.failed[0] + ROUND_TRIP


@pytest.mark.parametrize("seed", SEEDS)
def test_a_backend_that_fails_at_once_is_told_to_whoever_has_registered(seed: int) -> None:
    with World(seed, N) as world:
        world.start_all(within=0.1, absent=(VICTIM,))
        victim = world.start(VICTIM, at=1.0)
        victim.backend_error = "no such chip"
        world.run(until=2.0)
        assert_all_blame(world, VICTIM, "DeviceInitializationError: no such chip")


@pytest.mark.parametrize("victim", [0, VICTIM])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_backend_that_fails_at_once_is_told_to_whoever_comes_soon(seed: int, victim: int) -> None:
    with World(seed, N) as world:
        for process in world.start_all(within=0.1):
            process.backend_error = "no such chip" if process.client_id == victim else None
        world.run(until=3.0)
        assert_all_blame(world, victim, "DeviceInitializationError: no such chip", but=(victim,))


@pytest.mark.parametrize("phase", IN_BRING_UP)
@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_a_crash_is_told_at_once_in_every_phase(seed: int, phase: Phase) -> None:
    with World(seed, N) as world:
        run_into(world, VICTIM, phase).crash()
        crashed_at = world.clock.now
        world.run(until=crashed_at + 1.0)
        assert_all_blame(world, VICTIM, "process died")
        # The broken connection, the question, its answer, and the verdict, which waits a little for more proofs.
        assert last_told(world, but=VICTIM) <= crashed_at + 4 * DELAY_MAX + 0.02 + world.patience


@pytest.mark.parametrize("phase", IN_BRING_UP)
@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_a_crash_on_a_host_that_goes_down_is_told(seed: int, phase: Phase) -> None:
    with World(seed, N) as world:
        victim = run_into(world, VICTIM, phase)
        victim.crash()
        world.network.cut({VICTIM}, None)
        world.network.cut(None, {VICTIM})
        crashed_at = world.clock.now
        world.run(until=crashed_at + 15.0)
        assert_all_blame(world, VICTIM, "")
        assert last_told(world, but=VICTIM) <= crashed_at + 10.0 + 1.0 + ROUND_TRIP + DELAY_MAX + world.patience


@pytest.mark.parametrize("phase", IN_BRING_UP)
@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_clients_that_crash_together_are_named_together(seed: int, phase: Phase) -> None:
    with World(seed, N) as world:
        run_into(world, VICTIM, phase)
        together = [process for process in world.processes if process.client_id in (VICTIM, 8, 9)]
        for process in together:
            process.crash()
        world.run(until=world.clock.now + 1.0)
        for error in errors_of(world, PeerFailedError, but=(VICTIM, 8, 9)):
            assert isinstance(error, PeerFailedError)
            assert error.client_id in (VICTIM, 8, 9)
            assert "process died" in error.cause


@pytest.mark.parametrize("phase", IN_BRING_UP)
@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_the_coordinators_crash_is_told_at_once_in_every_phase(seed: int, phase: Phase) -> None:
    with World(seed, N) as world:
        run_into(world, 0, phase).crash()
        crashed_at = world.clock.now
        world.run(until=crashed_at + 1.0)
        for error in errors_of(world, CoordinatorLostError, but=(0,)):
            assert isinstance(error, CoordinatorLostError)
            assert error.client_id == 0
        # The broken connection, and another attempt that is refused.
        assert last_told(world, but=0) <= crashed_at + DELAY_MAX + ROUND_TRIP


@pytest.mark.parametrize("phase", IN_BRING_UP)
@pytest.mark.parametrize("seed", FEWER_SEEDS)
def test_silence_is_told_after_the_timeout_and_never_before(seed: int, phase: Phase) -> None:
    with World(seed, N) as world:
        run_into(world, VICTIM, phase).stop()
        stopped_at = world.clock.now
        world.run(until=stopped_at + 15.0)
        assert_all_blame(world, VICTIM, "no heartbeat for 10")
        told = [process.failed[0] for process in world.processes if process.failed]
        # The last sign of life is at most an interval and a delay older than the stop.
        assert min(told) >= stopped_at - 1.0 - DELAY_MAX - world.patience + 10.0
        assert max(told) <= stopped_at + 10.0 + 1.0 + ROUND_TRIP


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_shorter_than_the_timeout_is_forgiven(seed: int) -> None:
    with World(seed, N) as world:
        victim = run_into(world, world.rng.randrange(N), Phase.READY)
        victim.stop()
        world.run(until=world.clock.now + world.rng.uniform(1.0, 8.5))
        victim.resume()
        world.run(until=world.clock.now + 60.0)
        assert all(process.failed is None for process in world.processes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_was_stopped_blames_nobody_for_it(seed: int) -> None:
    with World(seed, N, heartbeat_timeout=30.0) as world:
        host = world.start(0, heartbeat_timeout=10.0)
        world.start_all(within=0.05, absent=(0,))
        world.settle(limit=10.0)
        host.stop()
        world.run(until=world.clock.now + 20.0)
        host.resume()
        world.run(until=world.clock.now + 60.0)
        assert all(process.failed is None for process in world.processes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_was_given_up_blames_nobody_else(seed: int) -> None:
    with World(seed, N) as world:
        host = run_into(world, 0, Phase.READY)
        host.stop()
        world.run(until=world.clock.now + 20.0)
        errors_of(world, CoordinatorLostError, but=(0,))
        host.resume()
        world.run(until=world.clock.now + 5.0)
        errors_of(world, CoordinatorLostError)


SUSPENDED = [Phase.RENDEZVOUS, Phase.RING, Phase.MERGE, Phase.COMMIT, Phase.READY, Phase.LEAVING]


@pytest.mark.parametrize("seconds", [3.0, 8.0, 14.0, 30.0])
@pytest.mark.parametrize("phase", SUSPENDED)
@pytest.mark.parametrize("num_clients", [2, 3, 8, 64])
def test_a_suspended_coordinator_blames_itself_or_nobody(num_clients: int, phase: Phase, seconds: float) -> None:
    with World(1, num_clients) as world:
        host = run_into(world, 0, phase)
        host.stop()
        world.run(until=world.clock.now + seconds)
        host.resume()
        world.run(until=world.clock.now + 10.0)
        others = [process for process in world.processes if process is not host and process.job is not None]
        if seconds < 9.0:
            assert all(process.failed is None for process in world.processes)
        elif phase is not Phase.RENDEZVOUS:
            errors_of(world, CoordinatorLostError)
            assert len(others) == num_clients - 1


@pytest.mark.parametrize("num_clients", [3, 4, 8, 64])
def test_that_all_others_die_at_once_is_told_with_their_names(num_clients: int) -> None:
    with World(1, num_clients) as world:
        host = run_into(world, 0, Phase.READY)
        world.run(until=world.clock.now + world.rng.uniform(0.0, 20.0))
        for process in world.processes:
            if process is not host:
                process.crash()
        world.run(until=world.clock.now + 1.0)
        assert host.failed is not None
        error = host.failed[1]
        assert isinstance(error, PeerFailedError)
        assert error.cause.startswith("process died")
        assert "Clients that failed with it: " in str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_slept_blames_nobody(seed: int) -> None:
    with World(seed, N) as world:
        world.bring_up()
        for process in world.processes:
            process.stop()
        world.run(until=world.clock.now + 3600.0)
        for process in world.rng.sample(world.processes, N):
            process.resume()
        world.run(until=world.clock.now + 60.0)
        assert all(process.failed is None for process in world.processes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_process_with_the_same_id_is_refused_and_the_job_comes_up(seed: int) -> None:
    with World(seed, N) as world:
        world.start_all(within=0.5)
        twin = world.start(VICTIM, at=world.rng.uniform(0.0, 1.0))
        world.settle(limit=10.0)
        both = [process for process in world.processes if process.client_id == VICTIM]
        refused = [process for process in both if process.failed is not None]
        assert len(refused) == 1
        error = refused[0].failed[1] if refused[0].failed else None
        assert isinstance(error, RegistrationRefusedError)
        assert error.field in ("client_id", "incarnation")
        assert all(process.up for process in world.processes if process is not refused[0])
        assert twin in both


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_clients", N + 1), ("job_name", "evaluator"), ("device_type", "CPU"), ("heartbeat_interval", 10.5)],
)
@pytest.mark.parametrize("seed", range(10))
def test_a_client_of_another_job_is_refused_with_both_sides_values(seed: int, field: str, value: object) -> None:
    with World(seed, N, initialization_timeout=20.0) as world:
        world.start_all(within=0.5, absent=(VICTIM,))
        addresses = tuple(f"host-{other}:10000" for other in range(N + 1))
        stranger = world.start(VICTIM, at=1.0, addresses=addresses, **{field: value})
        stranger.is_stranger = True
        world.run(until=2.0)
        assert stranger.failed is not None
        error = stranger.failed[1]
        assert isinstance(error, RegistrationRefusedError)
        assert (error.field, str(value) in error.ours) == (field, True)
        assert error.theirs
        rightful = world.start(VICTIM, at=2.0)
        world.settle(limit=5.0)
        assert rightful.up is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_that_differ_are_an_error_for_all(seed: int) -> None:
    with World(seed, N) as world:
        world.garblers.add(VICTIM)
        world.start_all(within=0.1)
        world.settle(limit=5.0)
        assert all(f" by client {VICTIM}." in str(error) for error in errors_of(world, TopologyError))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_core_that_two_clients_claim_is_an_error_for_all(seed: int) -> None:
    with World(seed, N) as world:
        world.devices[VICTIM] = (*world.devices[VICTIM][:-1], world.devices[VICTIM + 1][0])
        world.start_all(within=0.1)
        world.settle(limit=5.0)
        for error in errors_of(world, TopologyError):
            assert f"client {VICTIM} " in str(error)


@pytest.mark.parametrize("who", [0, VICTIM])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_gives_up_says_why(seed: int, who: int) -> None:
    with World(seed, N) as world:
        quitter = run_into(world, who, world.rng.choice(IN_BRING_UP))
        quitter.abort(KeyboardInterrupt("by hand"))
        aborted_at = world.clock.now
        world.run(until=aborted_at + 1.0)
        assert_all_blame(world, who, "KeyboardInterrupt: by hand")
        assert last_told(world, but=who) <= aborted_at + ROUND_TRIP
