"""The harness as a product: programs of one's own as clients, cuts, and the plugin for pytest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bringup
from bringup.testing import LocalJob, why_unavailable
from bringup.testing.namespaces import NamespaceNetwork

from ..lib.process_ends import has_ended

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
LISTENS = "import time; print('listening', flush=True); time.sleep(60)"
PLUGIN = ("-p", "no:bringup", "-p", "bringup.testing.plugin", "-p", "no:cacheprovider")
"""The entry point of an installed bringup is put out of the way, as the module may be there in one name only."""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


# Programs as clients.


@pytest.mark.parametrize("fork", [False, True])
def test_a_program_finds_its_place_in_the_job_in_the_environment(fork: bool, tmp_path: Path) -> None:
    names = ("BRINGUP_JOBS", "BRINGUP_CLIENT_ID", "BRINGUP_NUM_CLIENTS", "OWN", "JAX_PROCESS_ID")
    program = f"import os; print(*(os.environ.get(name) for name in {names}), os.getcwd())"
    with LocalJob(2, command=python(program), environment={"OWN": "all"}, cwd=tmp_path, fork=fork) as job:
        job.start([0])
        job.start([1], OWN="mine")
        assert job.wait() == {0: 0, 1: 0}
        assert job.clients[0].output == f"{','.join(job.jobs)} 0 2 all None {tmp_path}\n"
        assert job.clients[1].output == f"{','.join(job.jobs)} 1 2 mine None {tmp_path}\n"


@pytest.mark.parametrize("fork", [False, True])
def test_what_a_program_writes_can_be_waited_for(fork: bool, tmp_path: Path) -> None:
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.stdin.read(); sys.exit(3)"
    with LocalJob(1, command=python(program), cwd=tmp_path, fork=fork) as job:
        (client,) = job.start()
        assert client.wait_for("two") == "two"
        assert client.wait_for("on") == "one"
        with pytest.raises(AssertionError, match="before its output ended; it ended with status 3"):
            client.wait_for("three")
        assert (client.output, client.log) == ("one\n", "two\n")


def test_a_program_that_does_not_end_or_write_is_described(tmp_path: Path) -> None:
    with LocalJob(1, command=python(LISTENS), cwd=tmp_path) as job:
        (client,) = job.start()
        client.wait_for("listening")
        with pytest.raises(AssertionError, match=r"not end within 0\.1 s; it runs; its stdout:\nlistening"):
            job.wait(timeout=0.1)
        with pytest.raises(AssertionError, match=r"client 0 did not write 'ready' within 0\.1 s"):
            client.wait_for("ready", timeout=0.1)
        with pytest.raises(bringup.ConfigurationError, match="takes no calls"):
            client.call("barrier", name="b")
        with pytest.raises(bringup.ConfigurationError, match="namespaces=True"):
            job.cut(0)


@pytest.mark.parametrize(
    ("harm", "status"), [("kill", -signal.SIGKILL), ("terminate", -signal.SIGTERM), ("interrupt", 1)]
)
def test_a_program_is_ended_in_three_ways(harm: str, status: int, tmp_path: Path) -> None:
    program = f"try:\n    {LISTENS}\nexcept KeyboardInterrupt: raise SystemExit(1)"
    with LocalJob(1, command=python(program), cwd=tmp_path) as job:
        (client,) = job.start()
        client.wait_for("listening")
        getattr(client, harm)()
        assert client.wait() == status


@pytest.mark.parametrize("fork", [False, True])
def test_nothing_outlives_the_job(fork: bool, tmp_path: Path) -> None:
    """Neither what is stopped, nor what a client has started."""
    starts = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {LISTENS!r}], stdout=-3).pid)"
    with LocalJob(2, command=python(f"{starts}; {LISTENS}"), cwd=tmp_path, fork=fork) as job:
        job.start()
        pids = [client.process.pid for client in job.clients.values()]
        for client in job.clients.values():
            client.wait_for("listening")
            pids.append(int(client.output.split()[0]))
        job.clients[0].stop()
        job.clients[0].wait_stopped()
    for pid in pids:
        assert has_ended(pid)


@pytest.mark.parametrize(("namespaces", "fork"), [(False, False), (False, True), (True, False), (True, True)])
def test_nothing_outlives_a_harness_that_is_killed(namespaces: bool, fork: bool, tmp_path: Path) -> None:
    if namespaces and (reason := why_unavailable()):
        pytest.skip(reason)
    harness = f"""
import sys, time
from bringup.testing import LocalJob
job = LocalJob(2, namespaces={namespaces}, fork={fork}, command=[sys.executable, "-c", {LISTENS!r}])
job.start()
print(*(client.process.pid for client in job.clients.values()), flush=True)
time.sleep(60)
"""
    with subprocess.Popen(python(harness), stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
    for pid in pids:
        assert has_ended(pid)


# Cuts.


@pytest.fixture
def network() -> NamespaceNetwork:
    """Skips where there is none."""
    if reason := why_unavailable():
        pytest.skip(reason)
    return NamespaceNetwork(2)


def test_namespaces_reach_each_other_and_nothing_else(network: NamespaceNetwork) -> None:
    serves = "import socket; s = socket.create_server(('', 9)); print('up', flush=True); s.accept()"
    reaches = "import socket; socket.create_connection(('10.77.0.1', 9), 5); print('reached')"
    strays = "import socket; socket.create_connection(('192.0.2.1', 9), 5)"
    with network, subprocess.Popen([*network.prefix(0), *python(serves)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        assert subprocess.check_output([*network.prefix(1), *python(reaches)]) == b"reached\n"
        astray = subprocess.run([*network.prefix(1), *python(strays)], capture_output=True, text=True, check=False)
        assert "Network is unreachable" in astray.stderr


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_cut_swallows_what_goes_its_way(network: NamespaceNetwork, direction: str) -> None:
    """Datagrams there and back, each of which says which way it went."""
    echoes = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 9)); print('up', flush=True)
while True:
    data, address = s.recvfrom(9); print('got', data.decode(), flush=True); s.sendto(data, address)
"""
    asks = """
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(0.3); s.sendto(sys.argv[1].encode(), ('10.77.0.1', 9))
try: print(s.recv(9).decode())
except TimeoutError: print('silence')
"""

    def ask(word: str) -> str:
        return subprocess.check_output([*network.prefix(1), *python(asks), word], text=True).strip()

    with network, subprocess.Popen([*network.prefix(0), *python(echoes)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        assert ask("before") == "before"
        for _ in range(2):  # a cut that is there already is no error
            network.cut(0, direction)  # type: ignore[arg-type]
        assert ask("while") == "silence"
        for _ in range(2):
            network.heal(0, "both")
        assert ask("after") == "after"
        server.kill()
        heard = server.stdout.read().split()
        assert heard == ["got", "before", *(["got", "while"] if direction == "out" else []), "got", "after"]


def test_cuts_of_what_is_not_there_are_refused(network: NamespaceNetwork) -> None:
    with network:
        with pytest.raises(bringup.ConfigurationError, match="no client 2 to cut: the job has 2"):
            network.cut(2, "in")
        with pytest.raises(bringup.ConfigurationError, match="direction='up'"):
            network.cut(1, "up")  # type: ignore[arg-type]


def test_where_there_can_be_no_namespaces_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel without them, played by a namespace in which none are left."""
    if reason := why_unavailable():
        assert "no network namespaces" in reason
        return
    program = """
from bringup.testing.enter_namespace import NEW_USER, call
call("unshare", NEW_USER)
for name in ("user", "net"):
    open(f"/proc/sys/user/max_{name}_namespaces", "w").write("0")
from bringup.testing import why_unavailable
print(why_unavailable())
"""
    done = subprocess.run(python(program), capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "no network namespaces for the clients of a job: unshare: No space left on device" in done.stdout


def test_everything_that_cuts_take_is_given_back(tmp_path: Path) -> None:
    if reason := why_unavailable():
        pytest.skip(reason)
    before = len(os.listdir("/proc/self/fd"))
    with LocalJob(2, namespaces=True, command=python(LISTENS), cwd=tmp_path) as job:
        job.start()
        job.cut(1)
        assert job._network is not None
        host = job._network._host.pid
    assert has_ended(host)
    assert len(os.listdir("/proc/self/fd")) == before


# The plugin.


def test_the_plugin_gives_jobs_that_end_with_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        PIDS = []

        def test_a_job(local_job):
            job = local_job(2)
            assert len(job.initialize(device_type="SIM")) == 2
            PIDS.extend(client.process.pid for client in job.clients.values())

        def test_it_has_ended():
            import os, pytest
            for pid in PIDS:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=2)


def test_the_plugin_shows_what_the_clients_of_a_failed_test_wrote(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def run(local_job, program):
            job = local_job(2, command=[sys.executable, "-c", program])
            job.start()
            job.wait()
            return job

        def test_that_fails(local_job):
            job = run(local_job, "import os, sys; print('I am', os.environ['BRINGUP_CLIENT_ID'], file=sys.stderr)")
            assert job is None

        def test_that_passes(local_job):
            run(local_job, "print('nobody reads this')")
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-rA")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*- client 0 -*", "it ended with status 0; its stderr:", "I am 0", "*- client 1 -*", "*", "I am 1"]
    )
    result.stdout.no_fnmatch_line("*nobody reads this*")


def test_the_plugin_skips_with_the_reason_what_needs_namespaces(pytester: pytest.Pytester) -> None:
    """They are looked for once in a run, and not before they are asked for."""
    pytester.makeconftest(
        """
        import bringup.testing.namespaces as namespaces

        def why_unavailable():
            print("looked for")
            return "none on this machine"

        namespaces.why_unavailable = why_unavailable
        """
    )
    pytester.makepyfile(
        """
        import pytest

        def test_none_needed():
            pass

        @pytest.mark.needs_namespaces
        def test_marked():
            assert False

        def test_fixture(bringup_namespaces):
            assert False

        def test_job(local_job):
            local_job(2, namespaces=True)
            assert False
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "--strict-markers", "-rs", "-s")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["*SKIPPED*none on this machine"])
    assert result.stdout.str().count("looked for") == 1


def test_the_plugin_costs_other_projects_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_loaded():
            loaded = {name for name in sys.modules if name.split(".")[0] in ("bringup", "numpy", "grpc", "asyncio")}
            assert loaded <= {"bringup", "bringup.testing", "bringup.testing.plugin"} | OTHERS
        """.replace("OTHERS", "{name for name in loaded if name.startswith('asyncio')}")
    )
    pytester.runpytest_subprocess(*PLUGIN, "-p", "no:asyncio", "-W", "error").assert_outcomes(passed=1)


# The page.


def test_the_examples_of_the_page_run_as_they_stand(pytester: pytest.Pytester) -> None:
    program, *tests = blocks("python")
    pytester.makefile(".py", train=program)
    for number, test in enumerate(tests):
        pytester.makefile(".py", **{f"test_{number}": test})
    # Of the directions of a cut, whose differences are tested above and in tests/faults, one.
    result = pytester.runpytest_subprocess(*PLUGIN, "-rs", "-k", "both or not cut_off")
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) == outcomes.get("errors", 0) == 0
    assert outcomes["passed"] >= len(tests) if why_unavailable() is None else 1


def test_the_first_test_of_the_page_has_ten_lines() -> None:
    lines = [line for line in blocks("python")[1].splitlines() if line.strip()]
    assert len(lines) <= 10
