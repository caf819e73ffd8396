"""Starts that go wrong in the world around: ports that are taken, clients that are there twice, no files left."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from bringup.testing.job import LocalJob

from .assertions import FAST, check_names, check_works, failure_of, restart

QUICK = {"device_type": "SIM", "initialization_timeout": 1.0}


def port_of(job: LocalJob, client_id: int) -> int:
    return int(job.jobs[client_id].rpartition(":")[2])


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_stranger_on_the_coordinators_port(answers: bytes) -> None:
    """The coordinator says so at once; a client that finds the stranger waits, and is taken once the port is free."""
    with LocalJob(2) as job, socket.create_server(("127.0.0.1", port_of(job, 0))) as stranger:
        server = threading.Thread(target=_serve, args=(stranger, answers), daemon=True)
        server.start()
        job.start()
        late = job.clients[1].call("initialize", **QUICK).error()
        assert late.error == "RendezvousTimeoutError"
        assert list(late.attributes["missing"]) == ["0"]
        waiting = job.clients[1].call("initialize", device_type="SIM")
        began = time.monotonic()
        taken = job.clients[0].call("initialize", device_type="SIM").error()
        assert taken.error == "ConfigurationError"
        assert job.jobs[0] in taken.text
        assert taken.at - began < 5.0
        stranger.shutdown(socket.SHUT_RDWR)
        stranger.close()
        server.join()
        job.clients[0].call("initialize", device_type="SIM").value()
        waiting.value()
        check_works(job)


def _serve(stranger: socket.socket, answer: bytes) -> None:
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        while True:
            connection = held.enter_context(stranger.accept()[0])
            if answer:
                connection.sendall(answer)
                connection.close()


@pytest.mark.parametrize("twin", [0, 1])
def test_twins_that_start_at_once_do_not_keep_the_job_from_coming_up(twin: int) -> None:
    """Of two processes that believe that they are the same client one is taken, and the other is told whom it met."""
    with LocalJob(2) as job:
        (first,) = job.start([twin])
        (second,) = job.start([twin])
        job.start([1 - twin])
        for _ in range(3):
            calls = [client.call("initialize", device_type="SIM") for client in (first, second)]
            other = job.clients[1 - twin].call("initialize", device_type="SIM")
            answers = [call.answer() for call in calls]
            other.value()
            assert sorted(answer.error is None for answer in answers) == [False, True], answers
            winner, loser = (first, second) if answers[0].error is None else (second, first)
            (refused,) = [answer for answer in answers if answer.error is not None]
            assert refused.error == ("ConfigurationError" if twin == 0 else "RegistrationRefusedError")
            assert str(winner.process.pid) in refused.text, refused.text
            job.clients[twin] = winner
            check_works(job)
            for call in job.call("shutdown"):
                assert call.value() is None
        loser.close()


def test_clients_with_too_many_and_too_few_in_mind_do_not_disturb_the_job() -> None:
    with LocalJob(3) as job:
        alone = {"BRINGUP_JOBS": job.jobs[0]}
        job.start(**alone, BRINGUP_NUM_CLIENTS="3")
        waiting = job.call("initialize", [0, 1], device_type="SIM")
        for call in job.call("reach", [0, 1], phases=["rendezvous"]):
            call.value()
        for believed in (2, 4):
            (odd,) = job.start([2], **alone, BRINGUP_NUM_CLIENTS=str(believed))
            refused = odd.call("initialize", device_type="SIM").error()
            if believed == 2:
                assert refused.error == "ConfigurationError"  # it knows by itself that there is no client 2 of 2
            else:
                assert refused.error == "RegistrationRefusedError"
                assert (refused.attributes["field"], refused.attributes["ours"]) == ("num_clients", "4")
        job.start([2], **alone, BRINGUP_NUM_CLIENTS="3")
        job.clients[2].call("initialize", device_type="SIM").value()
        for call in waiting:
            call.value()
        check_works(job)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_full_table_of_files_is_an_error_and_no_more(victim: int) -> None:
    """Whatever it is that finds no descriptor left: nobody hangs, nothing is left over, and the next try works."""
    with LocalJob(2) as job:
        job.start()
        before = job.resources()
        failures = 0
        for spare in (0, 2, 4, 6, 8, 10, 12):
            job.clients[victim].call("limit_files", spare=spare).value()
            answers = [call.answer() for call in job.call("initialize", device_type="SIM", initialization_timeout=0.5)]
            for answer in answers:
                assert answer.error is None or "BringupError" in answer.bases, f"{spare} files left: {answer}"
                assert "internal error" not in answer.text, f"{spare} files left: {answer.text}"
            failures += answers[victim].error is not None
            for call in job.call("reset"):
                call.value()
        assert failures, "no number of files was too few"
        job.clients[victim].call("limit_files", spare=100).value()
        job.initialize(device_type="SIM")
        check_works(job)
        for call in job.call("reset"):
            assert call.value() is None
        assert job.resources_beyond(before) == [{}, {}]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_table_of_files_that_fills_up_later_is_no_failure(job: LocalJob, victim: int) -> None:
    """What is open goes on; what needs a descriptor more works again when there is one."""
    job.initialize(**{**FAST, "heartbeat_timeout": 5.0})
    job.clients[victim].call("limit_files", spare=0).value()
    entered = job.call("barrier", name="the first")
    assert [call.value() for call in job.call("all_reduce", array=[1])] == [[3]] * 3
    job.clients[victim].call("limit_files", spare=None).value()
    assert [call.value() for call in entered] == [None] * 3
    job.clients[victim].call("limit_files", spare=0).value()
    check_works(job)
    failed = job.clients[victim].call("wait_failed")
    job.clients[2].kill()
    check_names(failure_of(failed), 2)
    job.clients[victim].call("limit_files", spare=None).value()
    restart(job, [2])
    job.initialize(device_type="SIM")
    check_works(job)
