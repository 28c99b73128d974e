"""Defines the labels by which our objects are found in a cluster, and the annotations with their owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.trainer import labels

DOMAIN = "pulumi-trainer.dev"

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of all our objects; its value is `FIELD_MANAGER`."""
STACK = f"{DOMAIN}/stack"
"""Label of all our objects, by which a sweep finds them: a digest of stack and target, `-`, and a random part."""
JOB = f"{DOMAIN}/job"
"""Label of all objects of a job: its name."""
RECORD = labels.RECORD

OWNER = f"{DOMAIN}/owner"
"""Annotation of record and JobSet: the id that survives renames (jobs.identity.owner_id)."""
DIGEST = f"{DOMAIN}/digest"
"""Annotation of record and JobSet: digest of what the user wrote."""
RUN = f"{DOMAIN}/run"
"""Annotation of record and JobSet: the user's run key."""
RUN_ID = f"{DOMAIN}/run-id"
"""Label of the objects of a run: its id."""
CHANNEL = f"{DOMAIN}/channel"
"""Annotation of record and JobSet: the channel that its releases come from."""
CHANNEL_OF = f"{DOMAIN}/channel-of"
"""Annotation of record and JobSet: PROJECT/STACK of the channel, where the job is of the same program."""
FOLLOW = f"{DOMAIN}/follow"
"""Annotation of record and JobSet: how far it follows the channel."""
INTERRUPT = f"{DOMAIN}/interrupt"
"""Annotation of record and JobSet: whether a change may end its run, of a job that follows a channel."""
OVERRIDE = f"{DOMAIN}/suspend-override"
"""Annotation of a record: the `Override` by `pulumi-trainer suspend` or `resume`, as JSON."""
RETAIN = f"{DOMAIN}/retain"
"""Annotation of a record or claim that a sweep leaves alone; its value is "true"."""


def owner_of(found: Mapping[str, Any] | None) -> Owner:
    """Return the owner in the annotations and labels of an object."""
    id_ = str(section(found, "metadata", "annotations").get(OWNER) or "")
    return Owner(id_, str(section(found, "metadata", "labels").get(STACK) or ""), program_of(id_))
