"""Outputs in documents: known values are inserted, unknown ones stay leaves, secret ones move to a Secret.

With one unknown or secret value, all other values are still rendered, checked and shown.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import child_path, to_document, walk
from pulumi_trainer.args.json_values import in_brackets, json_value, to_whole_number
from pulumi_trainer.program.absent_outputs import absent_output
from pulumi_trainer.provider.engine import pulumi_compat
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown

SECRET_MARK = {"pulumi-trainer.dev/secret": True}
"""Replaces secret values in the input of a digest."""


@dataclass
class Resolved:
    """A plain document.

    Attributes:
        unknown: Token of an `Unknown` leaf -> its Output.
        secrets: Key of the Secret -> Output.
        depends_on: Resources that the values come from; inserted values would lose these dependencies.
    """

    document: Any
    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    secrets: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    depends_on: set[pulumi.Resource] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class _Secret:
    """A secret value; `Unknown` if it is not known yet."""

    output: pulumi.Output[Any]
    value: Any = field(repr=False)


async def resolve(document: Any, secret_name: str, result: Resolved | None = None) -> Resolved:
    """Await every Output of the document.

    A secret Output is allowed as the value of an environment variable, or for all variables of a container, which then refer to
    keys of the Secret `secret_name`; anywhere else it is a problem.
    """
    result = result or Resolved(document)
    result.document = document
    values = await _values(document, "", result)
    if not values:
        return result
    found = {}
    for path, value in values.items():
        found[path] = value
        if not isinstance(value, (_Secret, Unknown)):
            found[path] = to_document(to_whole_number(value))
    result.document = _with_secret_refs(walk(document, found.get), secret_name, result)
    return result


@dataclass(frozen=True)
class FreeForm:
    """Free-form data as JSON.

    Attributes:
        document: The data; None if any part is secret, because all of it is stored in the Secret then.
        visible: The data with `Unknown` leaves for secret parts.
        secrets: The paths of the secret parts, each as keys and positions.
    """

    document: Any
    visible: Any
    content: Any
    secrets: Sequence[Sequence[str | int]] = ()


async def resolve_json(given: Any, path: str, key: str, result: Resolved) -> FreeForm:
    """Await every Output of free-form data, a mapping or None. If any part is secret, the text of all is the secret `key`."""
    if given is None:
        return FreeForm(None, None, None)
    values = await _values(given, path, result, in_brackets)
    opened, closed, secrets = dict(values), dict(values), dict[str, _Secret]()
    for where, value in values.items():
        if isinstance(value, _Secret):
            secrets[where] = value
            opened[where], closed[where] = value.value, Unknown(where)
    document, found = json_value(walk(given, opened.get, path, in_brackets), path)
    result.problems += found
    digested = {where: _digested(value) for where, value in values.items()}
    content = walk(given, digested.get, path, in_brackets)
    if not secrets:
        return FreeForm(document, document, content)
    if not isinstance(document, (dict, Unknown)) and not found:
        result.problems.append(Problem(path, f"must be a mapping, not {type(document).__name__}"))
    text = ""
    if not first_unknown(document):
        text = json.dumps(document)
    outputs = [secret.output for secret in secrets.values()]
    outputs += [result.unknown[value.token] for value in values.values() if isinstance(value, Unknown)]
    if result.problems:  # `Output.all` would end the program at a key that is not a string
        outputs = []
    result.secrets[key] = pulumi.Output.all(*outputs).apply(lambda _: text)
    marked = walk(given, secrets.get, path, in_brackets)
    return FreeForm(None, walk(given, closed.get, path, in_brackets), content, [*_secret_paths(marked)])


def _secret_paths(value: Any) -> Iterator[list[str | int]]:
    """Yield keys and positions of each secret in data."""
    if isinstance(value, _Secret):
        yield []
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for step, item in inner:
        for rest in _secret_paths(item):
            yield [step, *rest]


def _digested(value: Any) -> Any:
    """Return the value of an Output for the digest: integral floats as ints."""
    if isinstance(value, _Secret):
        return SECRET_MARK
    return to_whole_number(json_value(value, "")[0])


async def _values(
    document: Any, path: str, result: Resolved, key_path: Callable[[str, Any], str] = child_path
) -> dict[str, Any]:
    """Return path -> value of each Output in the document: an `Unknown`, a `_Secret`, or the plain value."""
    leaves: dict[str, pulumi.Output[Any]] = {}

    def find(where: str, leaf: Any) -> Any:
        if isinstance(leaf, pulumi.Output):
            leaves[where] = leaf
        return leaf

    walk(document, find, path, key_path)
    return {where: await _value(where, output, result) for where, output in leaves.items()}


async def _value(path: str, output: pulumi.Output[Any], result: Resolved) -> Any:
    try:
        value = await output.future(with_unknowns=True)
    except Exception as error:  # Pulumi ends the program with its traceback, which does not name the use of the Output
        result.problems.append(_uncomputed(error).below(path))
        if _is_of_mapping_keys(error):  # the SDK's own frames alone: the traceback names no line of the program
            pulumi_compat.forget_failed_outputs(error)
        result.unknown[path] = output
        return Unknown(path)
    resources = await output.resources()
    result.depends_on |= resources
    missing = await absent_output(output)
    if missing:
        result.problems.append(missing.below(path))
        result.unknown[path] = output  # no further problems of it
        return Unknown(path)
    known = await output.is_known() and not pulumi.contains_unknowns(value)
    if resources and all(isinstance(resource, pulumi.StackReference) for resource in resources):
        value = to_whole_number(value)
    if not known:
        value = Unknown(path)
    if await output.is_secret():
        return _Secret(output, value)
    if not known:
        result.unknown[path] = output
        return value
    if value is not None:
        return value
    for job in resources:
        if not getattr(job, "to_the_end", True):
            result.warnings.append(_too_early(job).below(path))
    return None


def _too_early(job: Any) -> Problem:
    """Return the problem that the output of a job is None because nothing waits for the job."""
    why = f"is None: {job.where} is read when the job is {job.wait_for}, before it has its value"
    return Problem("", why, 'give that job wait_for="complete", or use its completion')


def _uncomputed(error: Exception) -> Problem:
    """Return the problem that an Output has failed, and where. The error's message is left out, as its values may be secret."""
    frames = [*traceback.extract_tb(error.__traceback__)]
    if _is_of_mapping_keys(error):
        return Problem("", "the Output is a mapping with a key that is not a string", "pass str(key)")
    own = [f for f in frames if "site-packages" not in f.filename and Path(f.filename).name == "__main__.py"]
    place = ""
    if own:
        place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    return Problem("", f"the Output cannot be computed: {type(error).__name__}{place}", "see its traceback")


def _is_of_mapping_keys(error: Exception) -> bool:
    """Return whether `Output.from_input` or `Output.secret` has failed at a key that is not a string."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].name == "liftValues"


def _with_secret_refs(value: Any, secret_name: str, result: Resolved, path: str = "") -> Any:
    if isinstance(value, _Secret):
        why = "is secret, and would be readable in the plan and in the cluster"
        result.problems.append(
            Problem(path, why, "pass secrets in env, in func_args or as credentials of an initializer")
        )
        return Unknown(path)  # no further problems of it
    if isinstance(value, list):
        return [_with_secret_refs(item, secret_name, result, f"{path}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        where = child_path(path, key)
        if key == "env":
            item = _variables(item, where, result)
            if isinstance(item, list):
                item = [_variable(each, f"{where}[{i}]", path, secret_name, result) for i, each in enumerate(item)]
        found[key] = _with_secret_refs(item, secret_name, result, where)
    return found


def _variables(env: Any, path: str, result: Resolved) -> Any:
    """Return the variables of a container whose `env` is one secret Output."""
    if not isinstance(env, _Secret):
        return env
    if isinstance(env.value, Unknown):
        result.unknown[path] = env.output
        return env.value
    listed = isinstance(env.value, list)
    if not listed or not all(isinstance(each, dict) and each.keys() == {"name", "value"} for each in env.value):
        why = "is secret, so it must be a mapping of strings: a Secret holds no other variables"
        result.problems.append(Problem(path, why))
        return Unknown(path)
    variables = []
    for each in env.value:
        value = each["value"]
        variables.append({**each, "value": _Secret(pulumi.Output.secret(value), value)})
    return variables


def _variable(variable: Any, path: str, holder: str, secret_name: str, result: Resolved) -> Any:
    """Return a variable with a secret value as a reference to the Secret."""
    if not isinstance(variable, dict):
        return variable
    secret, name = variable.get("value"), variable.get("name")
    if not isinstance(secret, _Secret) or not isinstance(name, str):
        return variable
    if not isinstance(secret.value, (str, Unknown)):
        result.problems.append(Problem(f"{path}.value", f"must be a string, not {type(secret.value).__name__}"))
        return {**variable, "value": Unknown(f"{path}.value")}
    key = f"{holder.rpartition('.')[2]}.{name}"
    if not _KEY.fullmatch(key) or key in result.secrets:
        key = re.sub(r"[^\w.-]+", "-", f"{holder}.{name}", flags=re.ASCII)[-_LONGEST:]
        if key in result.secrets:
            key = f"{key[-_LONGEST + 4 :]}.{len(result.secrets)}"
    result.secrets[key] = secret.output
    reference = {"secretKeyRef": {"name": secret_name, "key": key}}
    return {**without(variable, "value"), "valueFrom": reference}


_LONGEST = 253
_KEY = re.compile(rf"[-._a-zA-Z0-9]{{1,{_LONGEST}}}")
"""A valid key of a Secret (`IsConfigMapKey` of Kubernetes' apimachinery)."""


def restore_outputs(document: Any, unknown: dict[str, pulumi.Output[Any]]) -> Any:
    """Return the document with the original Outputs at its unknown leaves, which the engine shows as unknown."""
    if not unknown:
        return document

    def restore(_: str, leaf: Any) -> Any:
        if isinstance(leaf, Unknown):
            return unknown[leaf.token]
        return leaf

    return walk(document, restore)


def has_unknown(document: Any) -> bool:
    """Return whether any leaf is not known yet."""
    return first_unknown(document) is not None
