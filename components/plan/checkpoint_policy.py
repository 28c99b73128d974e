"""`TrainJob(checkpoint=)`: how often a job saves checkpoints, and the environment variables that its nodes get."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, type_problems
from pulumi_trainer.args.project import s3_problems
from pulumi_trainer.plan.volume_claims import OutputVolume
from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration
from pulumi_trainer.provider.pod import code

LONGEST = 7 * 24 * 3600
"""Seconds of the longest grace period."""
KILL_MARGIN = 10
"""Seconds between the end of the grace period of the program, and the end of that of its Pod."""


class CheckpointPolicy(Args):
    """How a job saves checkpoints, in its output volume or in S3, and how it goes on after an interruption.

    The program saves below TRAINER_CHECKPOINT_DIR, and loads TRAINER_RESUME_FROM, the newest complete checkpoint, if it is set
    (docs/guides/interruptions.md). Evictions, preemption and lost nodes then restart the job without using `max_restarts`.

    Args:
        every: Time between two checkpoints, in seconds or as text such as `10m` (TRAINER_CHECKPOINT_EVERY, in seconds).
            Default: the program decides.
        steps: Steps between two checkpoints (TRAINER_CHECKPOINT_STEPS). Default: the program decides.
        keep: Newest checkpoints that the program keeps; default: 3 (TRAINER_CHECKPOINT_KEEP).
        grace: Seconds that the program has after SIGTERM to save a checkpoint; default: 300. The Pods get 10 seconds more
            (`terminationGracePeriodSeconds`). With `to="s3://..."` the upload is part of them.
        max_restarts: Restarts after errors of the program until the job fails (`failurePolicy.maxRestarts` of the JobSet).
            Default: that of the runtime, else 3.
        to: The output volume, an `OutputVolume`, or a place in S3, `s3://BUCKET/PREFIX`: each node then saves in a folder of
            its own, and what is complete is uploaded below `PREFIX/PROJECT/STACK/NAMESPACE/JOB/LINEAGE`. The folder
            of the job belongs to the stack that saves there first; another stack of that name is rejected unless its TrainJob has
            `adopt=True`. The nodes need
            credentials in their environment. Default: the volume of `output=`, else one with default settings.
    """

    every: int | str | None = None
    steps: int | None = None
    keep: int = 3
    grace: int = 300
    max_restarts: int | None = None
    to: OutputVolume | pulumi.Input[str] | None = None

    def check(self) -> list[Problem]:
        found = [*super().check(), *type_problems(self)]
        for name in ("every", "steps", "keep", "grace", "max_restarts"):
            value = getattr(self, name)
            if isinstance(value, bool):
                found.append(Problem(name, f"must be a number, not {value}"))
        wrong = {problem.where for problem in found}
        for name, least in (("steps", 1), ("keep", 1), ("grace", 0), ("max_restarts", 0)):
            value = getattr(self, name)
            if name not in wrong and value is not None and value < least:
                found.append(Problem(name, f"must be at least {least}, not {value}"))
        if "grace" not in wrong and self.grace > LONGEST:
            found.append(Problem("grace", f"must be at most {LONGEST} seconds (7 days), not {self.grace}"))
        if "every" not in wrong:
            found += self._interval_problems()
        if isinstance(self.to, str):
            found += problems_below("to", s3_problems(self.to))
        return found

    def _interval_problems(self) -> list[Problem]:
        if isinstance(self.every, str) and parse_duration(self.every) is None:
            return [Problem("every", f"invalid duration {self.every!r} (expected for example 90s, 15m, 2h)")]
        if self._seconds() == 0 or (isinstance(self.every, int) and self.every < 0):
            return [Problem("every", f"must be at least one second, not {self.every!r}")]
        if self.every is not None and self.steps is not None:
            return [Problem("steps", "cannot be combined with every", "set only one of the two")]
        return []

    def _seconds(self) -> int | None:
        if isinstance(self.every, str):
            return parse_duration(self.every)
        return self.every

    def variables(self, framework: Any) -> list[dict[str, Any]]:
        """Return the environment variables of the nodes. framework: Framework of the runtime."""
        folder = code.CHECKPOINT_PATH
        if self.in_s3:
            folder = code.SCRATCH_PATH
        found = {
            CHECKPOINT_DIR: folder,
            "TRAINER_CHECKPOINT_EVERY": self._seconds(),
            "TRAINER_CHECKPOINT_STEPS": self.steps,
            "TRAINER_CHECKPOINT_KEEP": self.keep,
            "TRAINER_CHECKPOINT_GRACE": self.grace,
        }
        if framework == "torch":  # torchrun kills its workers this long after SIGTERM; default: 30
            found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = self.grace
        return [{"name": name, "value": str(value)} for name, value in found.items() if value is not None]

    @property
    def in_s3(self) -> bool:
        """Return whether checkpoints go to S3."""
        return isinstance(self.to, (str, pulumi.Output))

    @property
    def pod_grace(self) -> int:
        """Return `terminationGracePeriodSeconds` of the Pods."""
        return self.grace + KILL_MARGIN


def output_of(output: OutputVolume | bool, policy: CheckpointPolicy | None) -> OutputVolume | None:
    """Return the output volume of a job; None if it has none."""
    if isinstance(output, OutputVolume):
        return output
    if policy is not None and isinstance(policy.to, OutputVolume):
        return policy.to
    saves_in_volume = policy is not None and not policy.in_s3
    if output or saves_in_volume:
        return OutputVolume()
    return None


def checkpoint_place(job: str, namespace: Any) -> Any:
    """Return the folder of a job below the address in S3, which has one for each lineage; an unknown namespace as it is."""
    if not isinstance(namespace, str):
        return namespace
    return "/".join([pulumi.get_project(), pulumi.get_stack(), namespace, job])
