"""What the plan of a job says of its folder in S3; `tests/engine/test_checkpoints_in_s3.py` has the requests."""

from __future__ import annotations

import pytest
from pulumi_trainer.plan import checkpoint_folder
from pulumi_trainer.plan.job_plan import Plan, new_job
from pulumi_trainer.program.object_owner import ObjectOwner

STACK, WHERE = "organization/lab/test", "s3://bucket/lab/test/default/job/"
NAMESAKE = "another stack of this name: in another backend, renamed since, or one whose state is lost"


def judge(owner: str, *, random: str = "aa", adopt: bool = False) -> tuple[list[str], list[str]]:
    me = ObjectOwner(STACK, f"{STACK}/{random}" if random else "", {})
    plan = Plan(job=new_job("job", "default", {"kind": "local"}, adopt=adopt))
    found = checkpoint_folder._judge(plan, WHERE, owner, me)
    return [problem.why for problem in found.problems], [*found.notes]


@pytest.mark.parametrize(("owner", "random"), [("", ""), ("", "aa"), (f"{STACK}/aa", "aa"), ("acme/lab/test/aa", "aa")])
def test_a_folder_of_this_stack(owner: str, random: str) -> None:
    """The last one is of a stack that was transferred."""
    assert judge(owner, random=random) == ([], [])


@pytest.mark.parametrize(
    ("owner", "called"),
    [(f"{STACK}/bb", NAMESAKE), ("acme/other/prod/bb", "the stack acme/other/prod"), ("x\x1b[31m\ny", "the stack x")],
)
@pytest.mark.parametrize("random", ["aa", ""])
def test_a_folder_of_another_stack(owner: str, called: str, random: str) -> None:
    (why,), notes = judge(owner, random=random)
    assert why.startswith(f"{WHERE} belongs to {called}") and why.isprintable() and not notes
    problems, (note,) = judge(owner, random=random, adopt=True)
    assert note.startswith(f"{WHERE} belongs to {called}") and note.endswith("is taken over")
    assert not problems and note.isprintable()
