"""`TrainJob(fork=)`: from which checkpoint of an earlier run a job starts anew."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pulumi_trainer.args.arguments import Args, as_sequence, positional, type_problems
from pulumi_trainer.provider.jobs.runs import is_run_id
from pulumi_trainer.provider.kubernetes.errors import Problem


class Fork(Args):
    """A checkpoint of an earlier run of the job, which a new run starts from in a folder of its own; the earlier run stays.

    While the argument stays the same, a run that has not succeeded goes on from its own checkpoints, and one that has is followed
    by another fork.

    Args:
        run: Id of the run, as `pulumi-trainer runs JOB` lists it.
        step: Step of its checkpoint; default: its newest one.
        reset: What the new run does not take from the checkpoint, by name. With `pulumi_trainer.training`: values of the state
            that `load` is given, such as `optimizer` or `schedule`; options of its optimizers, such as `lr`, which keep the value
            that the program made them with; and `step`, which begins at 0. With its `callback`, and for the trainers of
            fine-tuning, whose learning rate is always that of `config`: `optimizer`. Default: nothing.
    """

    run: str = positional(kw_only=False)
    step: int | None = None
    reset: Sequence[str] | None = None

    def check(self) -> list[Problem]:
        found = [*super().check(), *type_problems(self)]
        if isinstance(self.run, str) and not is_run_id(self.run):
            hint = "`pulumi-trainer runs JOB` lists the ids of a job's runs"
            found.append(Problem("run", f"{self.run!r} is not a valid id of a run", hint))
        if isinstance(self.step, int) and (isinstance(self.step, bool) or self.step < 0):
            found.append(Problem("step", f"must be a number of steps, not {self.step}"))
        for i, name in enumerate(as_sequence(self.reset)):
            if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
                found.append(Problem(f"reset[{i}]", f"must be the name of a part of the checkpoint, not {name!r}"))
        return found


RESET_OF_TOOLS = ("optimizer",)
"""What the trainers for fine-tuning can leave out of a checkpoint."""
