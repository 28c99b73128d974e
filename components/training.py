"""What a training program calls in its job: checkpoints, the end of a container, and progress."""

from pulumi_trainer.provider.pod.training import Checkpoints, callback, checkpoints, done, progress, should_stop

__all__ = ["Checkpoints", "callback", "checkpoints", "done", "progress", "should_stop"]
