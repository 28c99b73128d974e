"""The environment variables that tell where the nodes of a job save checkpoints."""

from __future__ import annotations

import json
from typing import Any

CHECKPOINT_DIR = "TRAINER_CHECKPOINT_DIR"
CHECKPOINT_TO = "TRAINER_CHECKPOINT_TO"
"""Address in S3 that checkpoints are uploaded to."""
CHECKPOINT_OWNER = "TRAINER_CHECKPOINT_OWNER"
"""Owner mark of the stack, which the folder in S3 gets."""
CHECKPOINT_ATTEMPT = "TRAINER_CHECKPOINT_ATTEMPT"
"""What the nodes of one attempt have in common, and no other attempt."""
CHECKPOINT_ADOPT = "TRAINER_CHECKPOINT_ADOPT"
"""Set if the job takes over a folder in S3 that belongs to another stack."""
CHECKPOINT_FOLDER = "TRAINER_CHECKPOINT_FOLDER"
"""Folder of a job's checkpoints below that address; its last part is the folder of the lineage."""
CHECKPOINT_REMOVE = "TRAINER_CHECKPOINT_REMOVE"
"""Lineages whose folders in S3 the run removes, separated by commas; empty for none."""
FORK_FOLDER = "TRAINER_FORK_FOLDER"
"""Folder with the checkpoints of the lineage that a fork starts from: a path in the container, or below the address in S3."""
FORK_STEP = "TRAINER_FORK_STEP"
"""Step of the checkpoint that a fork starts from; not set: the newest one."""
FORK_RESET = "TRAINER_FORK_RESET"
"""What a fork does not take from that checkpoint, separated by commas."""


def saves_checkpoints(objects: Any) -> bool:
    """Return whether a job has a checkpoint policy, by its rendered objects or its JobSet."""
    return f'"name": "{CHECKPOINT_DIR}"' in json.dumps(objects, default=str)
