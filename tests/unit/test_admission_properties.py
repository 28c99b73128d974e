"""Whatever a document has: a review answers. tests/golden/test_properties.py has what it answers to changed documents."""

from __future__ import annotations

from typing import Any

from admission_support import Store, runtime, train_job
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import default_runtime, kinds, review

STORE = Store(runtime())

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["node", "1Gi", "2026-01-01T00:00:00Z", Unknown("1"), b"bytes", float("nan"), 10**400]),
)
keys = st.one_of(st.sampled_from(["name", "env", "spec", "metadata", "template"]), st.text(max_size=3), st.integers())
values = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)), max_leaves=8
)


@settings(max_examples=150)
@given(values)
def test_anything_at_all(value: Any) -> None:
    assert review(value).stage == "decode"
    for kind in kinds.values():
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}, "spec": value}
        assert review(document, lookup=STORE) is not None


def test_long_lists_are_no_trouble() -> None:
    """Thousands of wrong items take a second, before and after an update; their square would take minutes."""
    many = [{"name": f"n{place}", "value": 5} for place in range(20_000)]
    document = train_job(trainer={"env": many})
    assert len(review(document).errors) == len(many)
    wrong = runtime(template={"spec": {"replicatedJobs": [{"name": f"n{place}"} for place in range(10_000)]}})
    assert len(review(wrong, old=default_runtime(wrong)).errors) == 0
    assert len(review(wrong, old=runtime()).errors) == 10_001
