"""What Trainer's own initializers do with an `hf://` URI, which is less than the Local target does.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/initializers/dataset/huggingface.py, and `model/` beside it.
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.errors import Problem

_SCHEME = "hf://"
_FORM = "give hf://OWNER/NAME"


def repository_problem(uri: object, kind: str) -> Problem | None:
    """Return what Trainer's initializer does not fetch as its `hf://` URI says; None if it does, or for other schemes."""
    if not isinstance(uri, str) or not uri.startswith(_SCHEME):
        return None
    owner, _, rest = uri.removeprefix(_SCHEME).partition("/")
    name, slash, path = rest.partition("/")
    repository, at, revision = name.partition("@")
    shown = f"{_SCHEME}{owner}/{repository}"
    if "@" in owner:
        return Problem("", "has text before the owner", "pass a token as ACCESS_TOKEN")
    if at:
        why = f"Trainer's initializers do not support @REVISION: they would look for a repository {name!r}"
        return Problem("", why, f"give {shown}, or an image of your own that fetches {revision}")
    if kind == "dataset" and not name:
        return Problem("", "names no repository, and Trainer's dataset-initializer ends with an error", _FORM)
    unsupported = "Trainer's initializers do not support a path in a repository"
    if kind == "dataset" and path:
        why = f"{unsupported}: all of {shown} would be fetched"
        return Problem("", why, f"give {shown}, and exclude other files by ignore patterns (IGNORE_PATTERNS)")
    if kind == "model" and slash:
        why = f"{unsupported}: they would look for a model {f'{owner}/{rest}'!r}"
        return Problem("", why, f"give {shown}, or an image of your own that fetches a part of it")
    return None
