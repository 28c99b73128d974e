"""The offer of a RuntimeChannel to TrainJobs of its program and of other stacks: a release with its documents."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pulumi_trainer.plan.review import refusals
from pulumi_trainer.program.trainer_release import configured_release
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.documents import control_character_problems
from pulumi_trainer.provider.trainer.catalog.catalog import MAX_FILE, NAME
from pulumi_trainer.provider.trainer.catalog.versions import VERSION
from pulumi_trainer.provider.trainer.runtime_releases import CARRIED
from pulumi_trainer.provider.trainer.runtime_rollout import is_reached

FOLLOW = ("pin", "patch", "minor", "any")


@dataclass(frozen=True)
class Offer:
    """The releases of a channel.

    Attributes:
        before: Release of the jobs that a roll-out has not reached; empty: all have `release`.
        moved: Namespaces, and jobs as NAMESPACE/NAME, that it has reached.
    """

    channel: str
    runtime: str
    release: str
    documents: Mapping[str, dict[str, Any]] = field(repr=False)
    deprecated: Mapping[str, str] = field(default_factory=dict)
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    moved: Sequence[str] = ()

    def of_job(self, where: str) -> Offer:
        """Return the offer to a job, which has one release. where: NAMESPACE/NAME."""
        if not self.before or is_reached(where, self.moved):
            return self
        return replace(self, release=self.before)

    @classmethod
    def read(cls, given: Any) -> Offer:
        """Return the offer in the untrusted output of another stack."""
        try:
            return _read(json.dumps(given, sort_keys=True))  # the same for each of many jobs
        except (TypeError, ValueError, RecursionError):
            raise Invalid(
                Problem("", "not a valid offer of a RuntimeChannel: it contains values that are not plain data")
            ) from None

    @classmethod
    def from_document(cls, given: Any) -> Offer:
        """Return the offer in plain data."""
        hint = 'in the other stack: pulumi.export("stable", channel.offer); here: runtime=platform.get_output("stable")'
        parts = ("channel", "runtime", "release", "documents", "deprecated", "withdrawn")
        if not isinstance(given, Mapping) or {*given, "withdrawn"} - {"rollout"} != set(parts):
            raise Invalid(Problem("", "not a valid offer of a RuntimeChannel", hint))
        given = {"withdrawn": {}, **given}
        texts = [given[part] for part in parts[:3]]
        documents, messages = _unpacked(given["documents"]), (given["deprecated"], given["withdrawn"])
        fine = all(map(_is_short_text, texts)) and all(map(_are_messages, messages))
        fine = fine and NAME.fullmatch(given["runtime"]) is not None
        if not fine or not isinstance(documents, Mapping) or given["release"] not in documents:
            raise Invalid(Problem("", "not a complete offer of a RuntimeChannel", hint))
        for number, document in documents.items():
            if not VERSION.fullmatch(number) or not _is_runtime(document, given["runtime"]):
                raise Invalid(Problem(f"documents[{number}]", f"not a valid release of {given['runtime']}", hint))
            problems = [*control_character_problems(document), *refusals(document, configured_release())]
            if problems:
                raise Invalid(*problems_below(f"documents[{number}]", problems))
        rollout = section(given.get("rollout"))
        before, moved = rollout.get("before", ""), rollout.get("moved", [])
        if before not in ("", *documents) or not isinstance(moved, list) or not all(map(_is_short_text, moved)):
            raise Invalid(Problem("rollout", "not a valid roll-out of a RuntimeChannel", hint))
        return cls(texts[0], texts[1], texts[2], documents, dict(messages[0]), dict(messages[1]), before, tuple(moved))

    @property
    def output(self) -> dict[str, Any]:
        """Return the data for `read`. It contains the documents, so that other stacks need nothing else to render jobs, and
        compresses them, because `pulumi up` prints the outputs of a stack.
        """
        parts = {"channel": self.channel, "runtime": self.runtime, "release": self.release}
        found = {**parts, "documents": _packed(self.documents), "deprecated": dict(self.deprecated)}
        if self.withdrawn:  # `pulumi up` prints each part
            found["withdrawn"] = dict(self.withdrawn)
        if self.before:
            found["rollout"] = {"before": self.before, "moved": [*self.moved]}
        return found


def _is_short_text(given: Any) -> bool:
    return isinstance(given, str) and 0 < len(given) < 300 and given.isprintable()


def _are_messages(given: Any) -> bool:
    """Return whether a value maps releases to messages."""
    return isinstance(given, Mapping) and all(map(_is_short_text, [*given, *given.values()]))


def _is_runtime(document: Any, name: str) -> bool:
    """Return whether a document is a ClusterTrainingRuntime of this name."""
    if not isinstance(document, dict) or document.get("kind") != "ClusterTrainingRuntime":
        return False
    about = document.get("metadata")
    return isinstance(about, dict) and about.get("name") == name


@lru_cache(maxsize=32)
def _read(text: str) -> Offer:
    return Offer.from_document(json.loads(text))


def _packed(documents: Mapping[str, Any]) -> str:
    text = json.dumps(documents, sort_keys=True, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(given: Any) -> Any:
    """Return the decompressed documents; None if the data is invalid or too large."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(base64.b64decode(given, validate=True), (2 * CARRIED + 2) * MAX_FILE)
        if not unpacking.eof:
            return None
        return json.loads(text)
    except (TypeError, ValueError, RecursionError, zlib.error):
        return None
