"""The quota tree: cases in the manner of Kueue's TestAvailable (pkg/cache/scheduler/resource_test.go), and what always holds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kueue.quota import Tree, format_amount, tree

Document = dict[str, Any]
Usage = dict[str, dict[tuple[str, str], Fraction]]
GPU = ("h100", "gpu")


def member(
    kind: str, name: str, above: str = "", nominal: Any = None, borrow: Any = None, lend: Any = None
) -> Document:
    """A ClusterQueue or a Cohort with a quota of GPUs in one flavor."""
    limits = {"borrowingLimit": borrow, "lendingLimit": lend}
    quota = {"name": "gpu", "nominalQuota": nominal, **{k: v for k, v in limits.items() if v is not None}}
    groups = [{"coveredResources": ["gpu"], "flavors": [{"name": "h100", "resources": [quota]}]}]
    spec: Document = {"cohortName" if kind == "ClusterQueue" else "parentName": above} if above else {}
    return {
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec | ({} if nominal is None else {"resourceGroups": groups}),
    }


def queue(name: str, above: str = "", *quota: Any) -> Document:
    return member("ClusterQueue", name, above, *quota)


def cohort(name: str, above: str = "", *quota: Any) -> Document:
    return member("Cohort", name, above, *quota)


# documents, usage, what each queue could ever have
CASES: dict[str, tuple[list[Document], dict[str, int], dict[str, int]]] = {
    "queues by themselves, one beyond its quota": (
        [queue("a", "", 0), queue("b", "", 8)], {"a": 1, "b": 3}, {"a": 0, "b": 8},
    ),
    "a cohort with quota of its own, and a queue that keeps a GPU": (
        [queue("a", "all", 8), queue("b", "all", 8, None, 7), cohort("all", "", 8)], {"a": 2, "b": 1},
        {"a": 23, "b": 24},
    ),
    "borrowing from the cohort alone": (
        [queue("a", "all", 8), cohort("all", "", 8)], {"a": 12}, {"a": 16},
    ),
    "who has too much takes from those who lend nothing": (
        [queue("a", "all", 8), queue("b", "all", 8, 0, 0), cohort("all", "", 8)], {"a": 25}, {"a": 16, "b": 8},
    ),
    "limits of borrowing and of lending": (
        [queue("a", "all", 8), queue("b", "all", 8, 2), queue("c", "all", 8, None, 4), cohort("all", "", 8)],
        {"a": 16, "b": 8, "c": 5}, {"a": 28, "b": 10, "c": 32},
    ),
    "cohorts of cohorts": (
        [queue("a", "left", 8), queue("b", "right", 8, None, 0), cohort("root"), cohort("left", "root", 8),
         cohort("right", "root", 8)],
        {"a": 8, "b": 4}, {"a": 24, "b": 32},
    ),
    "a cohort that may borrow little": (
        [queue("a", "left", 8), queue("b", "left", 8, 4), queue("c", "right", 8), cohort("root"),
         cohort("left", "root", 8, 4), cohort("right", "root", 8)],
        {}, {"a": 28, "b": 12, "c": 40},
    ),
    "a cohort that lends little": (
        [queue("a", "left", 8, None, 4), queue("b", "left", 8), queue("c", "right", 0), queue("d", "root", 0), cohort("root"),
         cohort("left", "root", 0, None, 4), cohort("right", "root", 0)],
        {}, {"a": 16, "b": 12, "c": 4, "d": 4},
    ),
}  # fmt: skip


def used(usage: dict[str, int]) -> Usage:
    return {name: {GPU: Fraction(amount)} for name, amount in usage.items()}


@pytest.mark.parametrize("name", CASES)
def test_what_a_queue_can_have(name: str) -> None:
    documents, usage, most = CASES[name]
    found = tree(documents, used(usage))
    assert {n: int(q.potential(GPU)) for n, q in found.queues.items()} == most
    assert found.cycles == ()


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[Document], Usage]:
    """Some cohorts, each below an earlier one or none, and queues in them, with any limits."""
    amounts = st.integers(0, 20)
    limits = st.none() | amounts
    names = [f"c{i}" for i in range(draw(st.integers(1, 4)))]
    documents, usage = [], Usage()
    for i, name in enumerate(names):
        above = draw(st.sampled_from(["", *names[:i]])) if i else ""
        documents.append(
            cohort(name, above, draw(amounts), draw(limits) if above else None, draw(limits) if above else None)
        )
    for i in range(draw(st.integers(1, 5))):
        above = draw(st.sampled_from(["", *names]))
        borrow, lend = (draw(limits), draw(limits)) if above else (None, None)
        documents.append(queue(f"q{i}", above, draw(amounts), borrow, lend))
        usage[f"q{i}"] = {GPU: Fraction(draw(st.integers(0, 40)))}
    return draw(st.permutations(documents)), usage


@given(forests())
def test_what_always_holds(given_: tuple[list[Document], Usage]) -> None:
    documents, usage = given_
    found = tree(documents, usage)
    total = sum(quota.nominal for n in (*found.queues.values(), *found.cohorts.values()) for quota in n.quotas.values())
    for name, node in found.queues.items():
        own = node.quota(GPU)
        assert 0 <= node.potential(GPU) <= total
        if own.borrowing is not None:
            assert node.potential(GPU) <= own.nominal + own.borrowing
        if node.parent is None:
            assert node.potential(GPU) == own.nominal
        assert node.borrowed(GPU) == max(0, usage[name][GPU] - own.nominal)
    for node in found.cohorts.values():
        assert node.subtree(GPU) <= total


def test_circles() -> None:
    found = tree(
        [cohort("a", "b"), cohort("b", "c"), cohort("c", "a"), cohort("d", "a"), cohort("e", "e"), queue("q", "d", 8)]
    )
    assert found.cycles == (("a", "b", "c"), ("e",))
    assert found.in_cycles == {"a", "b", "c", "d", "e"}
    assert found.queues["q"].potential(GPU) == 8, "nothing is counted for ever"


@pytest.mark.parametrize(
    "spec", [None, [], {"resourceGroups": 3}, {"resourceGroups": [{"flavors": [None, {"resources": [7]}]}]}]
)
def test_documents_may_hold_anything(spec: Any) -> None:
    found = tree(
        [{"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}, {"kind": "Cohort"}, {"metadata": None}]
    )
    assert found.queues["q"].potential(GPU) == 0


@pytest.mark.parametrize(
    ("resource", "amount", "printed"),
    [("cpu", "1500m", "1500m"), ("cpu", "2000m", "2"), ("memory", "2048Mi", "2Gi"), ("memory", "1500", "1500"),
     ("nvidia.com/gpu", "24", "24"), ("nvidia.com/gpu", "4000", "4k"), ("cpu", "0", "0")],
)  # fmt: skip
def test_amounts_are_printed_as_kueue_does(resource: str, amount: str, printed: str) -> None:
    assert format_amount(resource, Quantity.parse(amount).amount) == printed


def test_a_tree_of_a_thousand_queues_is_quick_enough_to_be_asked_for_all() -> None:
    """The sums of a cohort are made once: asking every queue takes as many steps as there are queues."""
    found: Tree = tree([cohort("all", "", 8), *(queue(f"q{i}", "all", 8, None, 4) for i in range(1000))])
    assert sum(q.potential(GPU) for q in found.queues.values()) == 1000 * (4 + 8 + 1000 * 4)
