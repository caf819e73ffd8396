"""Where each case of jax's client is tested, by the number that the cases have in `jax_client_cases.py` and elsewhere.

C the key-value store, D barriers, E membership, G preemption. A name alone is a case of `jax_client_cases.py`, all
others are tests. `Differs` says why ours does better not to do what the original does; its tests show what it does.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBERED = {"C": 20, "D": 21, "E": 20, "G": 6}
"""The number of cases of each kind."""


@dataclass(frozen=True, slots=True)
class Differs:
    """A case of the original's that is another one here: why, and what shows it."""

    why: str
    tests: tuple[str, ...]

    def __init__(self, why: str, *tests: str) -> None:
        object.__setattr__(self, "why", why)
        object.__setattr__(self, "tests", tests)


_ENDS_WITH_ANY = "a job ends with any of its clients, and says with which: there are no members that come back"
_COUNTED = "the coordinator counts the rounds, so that no client can be out of step"

_BRING_UP = "tests/integration/test_bring_up.py::"
_REFUSALS = "tests/integration/test_refusals.py::"
_COORDINATOR = "tests/unit/runtime/machines/coordinator/test_coordinator_machine.py::"
_COORDINATOR_ENDS = "tests/unit/runtime/machines/coordinator/test_coordinator_ends.py::"
_COORDINATOR_SILENCE = "tests/unit/runtime/machines/coordinator/test_coordinator_silence.py::"
_KILL = "tests/faults/test_kill.py::"
_PREEMPTION = "tests/unit/runtime/machines/test_preemption.py::"
_KILLED_IDLE = f"{_KILL}test_killed_when_up_and_idle_while_others_wait_in_every_way"
_LATE = f"{_BRING_UP}test_any_client_may_start_last"
_MISSING = f"{_REFUSALS}test_a_missing_client_is_named_at_the_deadline"

CASES: dict[str, str | tuple[str, ...] | Differs] = {
    "C1": "c01_a_key_is_set_once",
    "C2": "c02_unless_it_may_be_overwritten",
    "C3": "c03_keys_are_paths",
    "C4": "c04_a_get_waits_over_a_delete",
    "C5": "c05_delete_takes_what_lies_below",
    "C6": "c06_try_get_does_not_wait",
    "C7": "c07_increment_of_text",
    "C8": "c08_increment_from_nothing",
    "C9": "c09_a_directory_is_listed_whole",
    "C10": "c10_and_nothing_else",
    "C11": "c11_a_slash_at_the_end_means_the_same",
    "C12": "c12_a_directory_is_deleted_whole",
    "C13": "c13_with_the_key_of_its_name",
    "C14": "c14_a_get_of_what_was_deleted_times_out",
    "C15": "c15_a_get_waits_for_another_client",
    "C16": "c16_a_get_times_out_at_its_deadline",
    "C17": "c17_large_values_are_listed_everywhere",
    "C18": "c18_bytes_that_are_no_text",
    "C19": "c19_one_sets_and_all_get",
    "C20": "c20_nothing_can_be_deleted_again",
    "D1": "d01_all_wait_for_the_last",
    "D2": "d02_some_pass_without_the_others",
    "D3": "d03_sets_that_differ_fail_for_all",
    "D4": "d04_one_who_is_not_among_them_while_another_waits",
    "D5": "d05_one_who_is_not_among_them_afterwards",
    "D6": "d06_one_who_is_not_in_the_job",
    "D7": "d07_a_time_out_says_who_is_missing",
    "D8": "d07_a_time_out_says_who_is_missing",
    "D9": "d09_the_first_sets_the_deadline",
    "D10": "d10_an_id_can_be_used_again",
    "D11": Differs(_COUNTED, "d11_a_slow_and_a_fast_client_never_meet_in_the_wrong_round"),
    "D12": Differs(
        _COUNTED,
        "tests/unit/runtime/machines/barrier/test_rounds.py::test_the_nth_call_of_each_client_ends_as_round_n_does",
    ),
    "D13": Differs("it is `UNAVAILABLE`, as for every other call, with who and why", "killed"),
    "D14": Differs(
        "a client that is silent has failed, and the job with it",
        "killed",
        "tests/faults/test_stop.py::test_stopped_for_longer_than_the_timeout_while_others_wait_in_every_way",
    ),
    "D15": Differs(
        "the original's Python client cannot cancel either; here a caller that is cancelled has not come",
        "tests/unit/runtime/machines/barrier/test_rounds.py::test_who_cancels_has_not_come_and_comes_to_the_same_round_again",
        "tests/unit/runtime/machines/barrier/test_rounds.py::test_a_cancel_that_meets_the_release_comes_too_late",
    ),
    "D16": "d16_one_thread_at_a_time",
    "D17": "killed",
    "D18": "d18_different_barriers_do_not_meet",
    "D19": "d19_the_even_ones",
    "D20": "d20_no_ids_are_all_and_double_ones_are_refused",
    "D21": Differs(_ENDS_WITH_ANY, "killed"),
    "E1": (_LATE, "tests/simulation/test_shutdown.py::test_all_leave_together"),
    "E2": _LATE,
    "E3": _MISSING,
    "E4": Differs(
        "the job has failed by then, with who died; once all begin anew it comes up",
        f"{_KILL}test_a_restarted_client_is_not_taken_for_the_one_that_died",
    ),
    "E5": (
        f"{_KILL}test_killed_before_anybody_knew_it_is_replaced",
        f"{_REFUSALS}test_a_second_process_with_the_same_id_is_refused_and_disturbs_nobody",
    ),
    "E6": f"{_COORDINATOR}test_a_client_that_had_no_answer_may_register_again_on_another_connection",
    "E7": (
        f"{_COORDINATOR}test_a_stranger_that_does_not_register_is_shown_the_door",
        f"{_COORDINATOR}test_a_restarted_client_is_refused_by_its_incarnation",
    ),
    "E8": Differs(
        "after one time-out, not two; nobody who was heard is blamed",
        f"{_COORDINATOR_SILENCE}test_silence_is_death_after_the_timeout",
        f"{_COORDINATOR_SILENCE}test_a_coordinator_that_slept_blames_nobody",
    ),
    "E9": (
        "tests/integration/test_sync.py::test_an_exception_in_the_body_ends_the_job_for_all_with_its_cause",
        "killed",
    ),
    "E10": (
        "tests/contracts/test_reconnection.py::"
        "test_a_connection_that_breaks_while_the_job_is_up_is_restored_and_counted"
    ),
    "E11": Differs(
        "there is no poll that could come too early or too late: a client is told in its session",
        f"{_COORDINATOR_ENDS}test_after_the_end_who_is_new_is_told_why_and_the_rest_is_sent_away",
        "tests/contracts/test_reconnection.py::test_a_verdict_that_finds_a_client_away_reaches_it_when_it_comes_back",
    ),
    "E12": "killed",
    "E13": Differs(_ENDS_WITH_ANY, "killed"),
    "E14": Differs(
        "who does not come to shut down is named in the log, and fails nobody",
        f"{_BRING_UP}test_a_client_that_never_shuts_down_is_named_and_does_not_hold_up_the_rest",
    ),
    "E15": (_MISSING, f"{_REFUSALS}test_after_a_time_out_the_same_ports_work_at_once"),
    "E16": Differs("`System.wait_failed` waits for the one change that there is", _KILLED_IDLE),
    "E17": _KILLED_IDLE,
    "E18": _KILLED_IDLE,
    "E19": (
        "e19_live_nodes_are_the_same_everywhere",
        "e19_sets_that_overlap_do_not_wait_for_each_other",
        "e19_who_asks_must_be_among_them",
        "killed",
    ),
    "E20": "tests/simulation/test_shutdown.py::test_all_leave_together",
    "G1": ("g01_no_notice_no_point", f"{_PREEMPTION}test_without_a_notice_no_step_is_the_one"),
    "G2": ("g02_a_notice_makes_the_next_step_the_point", f"{_PREEMPTION}test_the_step_after_the_notice_is_the_one"),
    "G3": (
        "g03_a_notice_for_later_waits",
        f"{_PREEMPTION}test_a_notice_of_what_is_far_away_waits_until_the_window_begins",
    ),
    "G4": (
        "g04_the_slow_catch_up_with_the_fast",
        f"{_PREEMPTION}test_a_slow_client_and_a_fast_one_are_told_at_the_same_step",
    ),
    "G5": Differs(
        "once a client has failed the point raises `UNAVAILABLE`, so that no program trains on alone",
        "killed",
    ),
    "G6": (
        "tests/integration/test_jax_client.py::test_shutting_down_with_a_notice_that_nobody_has_met",
        f"{_PREEMPTION}test_nobody_waits_for_the_step_of_one_who_is_shutting_down",
    ),
}
"""By number, where it is shown."""

CASES_WITHOUT_A_NUMBER = ["c21_what_the_original_takes_and_what_not", "c22_from_plain_threads"]
