"""What the plan of a job says of its folder in S3; `tests/engine/test_checkpoints_in_s3.py` has the requests."""

from __future__ import annotations

import pytest
from pulumi_trainer.plan import checkpoint_folder
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.program.object_owner import ObjectOwner

STACK, WHERE = "organization/lab/test", "s3://bucket/lab/test/default/job/"
CONTINUES = "the job continues from step-10, which it has. To start anew, set resume=False on the TrainJob"
NAMESAKE = "another stack of this name: in another backend, renamed since, or one whose state is lost"


def judge(owner: str, newest: str, *, random: str = "aa", adopt: bool = False) -> tuple[list[str], list[str]]:
    me = ObjectOwner(STACK, f"{STACK}/{random}" if random else "", {}, frozenset())
    plan = Plan("job", "default", {"kind": "local"}, adopt=adopt)
    found = checkpoint_folder._judge(plan, WHERE, owner, newest, me)
    return [problem.why for problem in found.problems], [*found.notes]


@pytest.mark.parametrize(
    ("owner", "newest", "random", "note"),
    [
        ("", "", "", ""),
        ("", "step-10", "", f"{WHERE} has no recorded owner; {CONTINUES}"),
        (f"{STACK}/aa", "step-10", "aa", f"{WHERE}: {CONTINUES}"),
        (f"{STACK}/aa", "", "aa", ""),
        ("acme/lab/test/aa", "", "aa", ""),  # the stack was transferred
    ],
)
def test_a_folder_of_this_stack(owner: str, newest: str, random: str, note: str) -> None:
    assert judge(owner, newest, random=random) == ([], [note] if note else [])


@pytest.mark.parametrize(
    ("owner", "called"),
    [(f"{STACK}/bb", NAMESAKE), ("acme/other/prod/bb", "the stack acme/other/prod"), ("x\x1b[31m\ny", "the stack x")],
)
@pytest.mark.parametrize("random", ["aa", ""])
def test_a_folder_of_another_stack(owner: str, called: str, random: str) -> None:
    (why,), notes = judge(owner, "step-10", random=random)
    assert why.startswith(f"{WHERE} belongs to {called}") and why.isprintable() and not notes
    problems, (note,) = judge(owner, "step-10", random=random, adopt=True)
    assert note.startswith(f"{WHERE} belongs to {called}") and note.endswith(f"is taken over; {CONTINUES}")
    assert not problems and note.isprintable()
    assert judge(owner, "", random=random, adopt=True)[1][0].endswith(" is taken over")
