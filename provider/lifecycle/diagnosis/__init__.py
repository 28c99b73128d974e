"""What a job of a cluster is doing, and why: out of its documents, without asking anybody.

`seen` says what is looked at, `phase` decides, the other files know one thing each. Targets and the command line call it.
"""

from pulumi_trainer.provider.lifecycle.diagnosis.phase import diagnose, why
from pulumi_trainer.provider.lifecycle.diagnosis.seen import KEPT, Seen, keep

__all__ = ["KEPT", "Seen", "diagnose", "keep", "why"]
