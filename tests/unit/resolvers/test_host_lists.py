"""Slurm's lists of hosts and tasks: the forms that Slurm expands, to what it expands them, and all others refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.resolvers.host_lists import HOSTS_MAX, expand_hosts, expand_tasks

from ...lib.launches import vectors


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        # As `scontrol show hostnames` of Slurm 22.05 prints them.
        ("n1", "n1"),
        ("b,a", "b a"),
        ("n[1,3]", "n1 n3"),
        ("h[7]", "h7"),
        ("n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9"),
        ("n[0001-0003],m5,o[009-011]", "n0001 n0002 n0003 m5 o009 o010 o011"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[98-101]", "n98 n99 n100 n101"),
        ("n[01-3]", "n01 n02 n03"),
        ("[1-3]", "1 2 3"),
        ("x[1,1]", "x1 x1"),
        ("a,", "a"),
        ("", ""),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("rack[0-1]n[0-1]", "rack0n0 rack0n1 rack1n0 rack1n1"),
        # Text after the last bracket, which some sites have and that Slurm does not expand.
        ("n[1-2]-ib,login", "n1-ib n2-ib login"),
        ("node[001,7-8].cluster.local", "node001.cluster.local node7.cluster.local node8.cluster.local"),
    ],
)
def test_hosts(text: str, hosts: str) -> None:
    assert expand_hosts(text) == hosts.split()


@pytest.mark.parametrize(
    "text",
    ["n[3-1]", ",a", "a,,b", ",", "n[]", "n[a-b]", "n[1-2-3]", "a[1", "a]b", "n[[1]]", "n[-1]", "n[1,]", "n[\u0661]"],
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError):
        expand_hosts(text)


@pytest.mark.parametrize("text", ["n[1-999999999]", "a[1-999]b[1-999]", ",".join(["n[1-9999]"] * 14)])
def test_no_list_of_hosts_costs_more_than_the_largest_cluster(text: str) -> None:
    with pytest.raises(ValueError, match=f"{HOSTS_MAX}|too long"):
        expand_hosts(text)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("2", [2]),
        ("2,1,3", [2, 1, 3]),
        ("3(x2),2,11(x4)", [3, 3, 2, 11, 11, 11, 11]),
        ("13(x10)", [13] * 10),
        ("2(x0)", []),
        ("0(x2)", [0, 0]),
    ],
)
def test_tasks(text: str, tasks: list[int]) -> None:
    assert expand_tasks(text) == tasks


@pytest.mark.parametrize("text", ["", "a", "2(x)", "(x2)", "2,", "2(x99999999)"])
def test_what_is_no_list_of_tasks(text: str) -> None:
    with pytest.raises(ValueError):
        expand_tasks(text)


@given(st.text("n[]-,()x019 ", max_size=20) | st.text(max_size=20))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    for expand in (expand_hosts, expand_tasks):
        try:
            assert len(expand(text)) <= HOSTS_MAX
        except ValueError:
            pass


@pytest.mark.parametrize("case", [case for case in vectors("tf_slurm") if "cluster_spec" in case])
def test_tensorflow_expands_to_the_same(case: dict[str, dict[str, str]]) -> None:
    spec: dict[str, list[str]] = case["cluster_spec"]  # type: ignore[assignment]
    theirs = [address.rpartition(":")[0] for job in sorted(spec) for address in spec[job]]
    hosts = expand_hosts(case["env"]["SLURM_STEP_NODELIST"])
    tasks = expand_tasks(case["env"]["SLURM_STEP_TASKS_PER_NODE"])
    ours = [host for host, count in zip(hosts, tasks, strict=True) for _ in range(count)]
    # It leaves tasks out for which there is no GPU, and an argument may give other numbers of tasks.
    assert theirs == (ours if len(theirs) == len(ours) else [host for host in ours if host in theirs][: len(theirs)])
