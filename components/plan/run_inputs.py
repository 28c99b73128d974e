"""What identifies the inputs of a run, each as a short text: the job's record keeps them, and a later run is compared to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.code.compiled import digest_of_script
from pulumi_trainer.code.user_code import tool_packages
from pulumi_trainer.plan.job_plan import Plan, RenderedJob
from pulumi_trainer.plan.tool_job import describe_batch
from pulumi_trainer.plan.tracking import describe_tracking
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.jobs.runs import BATCH, COMMIT, KEEP, LOGS, LONGEST, NODES
from pulumi_trainer.provider.jobs.tracking import TRACKING
from pulumi_trainer.provider.kubernetes.values.accessors import listed, mappings, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.trainer.catalog.git import describe_commit

_DIGITS = 12
"""Characters of a digest."""


def describe_inputs(
    code: Mapping[str, Any], trainer: Mapping[str, Any], arguments: Any, runtime: Mapping[str, Any],
    data: Mapping[str, Mapping[str, str]], objects: Mapping[str, Any], revision: str = "", script_name: str = "",
) -> dict[str, str]:  # fmt: skip
    """Return name -> text for each input of a run that is known."""
    if code.get("func_args") is None:
        arguments = trainer.get("args")
    found = {
        "code": _describe_code(code, trainer, script_name),
        "arguments": arguments,
        "packages": _describe_packages(code),
        "image": _describe_images(objects),
        "runtime": _describe_runtime(runtime),
    }
    for kind, about in data.items():  # packages of this machine have a version beside their list
        found[kind] = " ".join(filter(None, [found.get(kind), about["name"], about["version"]]))
    known = _known_texts(found)
    origin = f" (git {revision})"
    if revision and "code" in known and len(known["code"] + origin) <= LONGEST:
        known["code"] += origin  # behind what is cut, whose digest does not cover it
    return known


def describe_nodes(
    nodes: Any, trainer: Mapping[str, Any], server: Mapping[str, Any], secret_name: str
) -> dict[str, str]:
    """Return name -> text for what the job declares of its nodes and of its generation server, without secret values."""
    generation = {"environment": _describe_environment(server, secret_name), "resources": _describe_resources(server)}
    return _known_texts({
        NODES: nodes,
        "processes": trainer.get("numProcPerNode"),
        "resources": _describe_resources(trainer),
        "environment": _describe_environment(trainer, secret_name),
        "generation": {name: value for name, value in generation.items() if value},
    })  # fmt: skip


def _describe_resources(node: Mapping[str, Any]) -> Any:
    """Return the resources of a node; only the limits if the requests are the same."""
    resources = node.get("resourcesPerNode")
    limits = section(resources).get("limits")
    if resources == {"limits": limits, "requests": limits}:
        return limits
    return resources


def _describe_environment(node: Mapping[str, Any], secret_name: str) -> dict[str, Any]:
    """Return name -> value of the variables of a node.

    Of a variable with `valueFrom` the value is that reference, or `secret` if it names the job's own Secret.
    """
    found = {}
    for variable in mappings(node.get("env")):
        value = variable.get("valueFrom") or variable.get("value") or ""
        if section(value, "secretKeyRef").get("name") == secret_name:
            value = "secret"
        found[str(variable.get("name"))] = value
    return found


def _known_texts(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as texts, without empty values and those that are not known yet."""
    return {name: _text(value) for name, value in found.items() if value and first_unknown(value) is None}


def _describe_code(code: Mapping[str, Any], trainer: Mapping[str, Any], script_name: str) -> Any:
    if not code:
        return trainer.get("command")
    if first_unknown(code) is not None:
        return ""
    if code.get("tool"):
        return _describe_tool(code)
    start = [*(code.get("entry") or [])]
    if code["script"]:
        start = [digest_of_script(script_name, code["script"])[:_DIGITS]]
    if code.get("source"):
        if start:
            start.append("of")
        start += ["project", code["source"][:_DIGITS]]
    return " ".join(start)


def _describe_tool(code: Mapping[str, Any]) -> str:
    """Return the tool, its method, and the functions that it calls with a digest of each."""
    arguments = section(code, "func_args")
    found = [f"{code['tool']} {text(arguments.get('method'))}"]
    for at, name in enumerate(listed(arguments.get("rewards"))):
        found.append(f"{name} {digest_of_script(f'{name}()', code['modules'][f'reward_{at}.py'])[:_DIGITS]}")
    return ", ".join(found)


def _describe_packages(code: Mapping[str, Any]) -> Any:
    packages = code.get("packages") or []
    if first_unknown(packages) is not None:
        return ""
    before = ""
    if code.get("tool"):
        pinned = tool_packages(code["tool"], [], code.get("server"))
        before = f"{code['tool']}@{table(code['tool'])['release']} {short_digest(pinned, _DIGITS)}"
    elif code.get("requirements"):
        before = f"requirements {short_digest(code['requirements'], _DIGITS)}"
    return " ".join(filter(None, [before, *packages]))


def _describe_runtime(runtime: Mapping[str, Any]) -> str:
    if first_unknown(runtime) is not None:
        return ""
    return f"{named_release(runtime)} {runtime.get('digest', '')}"


def named_release(runtime: Mapping[str, Any]) -> str:
    """Return name and release of a runtime: `name@release`, or the name alone if it has no release."""
    name = runtime.get("name", "")
    if runtime.get("release"):
        return f"{name}@{runtime['release']}"
    return str(name)


def _describe_images(objects: Mapping[str, Any]) -> str:
    """Return the images of all steps; one that all of them have is named once."""
    found = []
    for key, document in objects.items():
        if key.startswith("JobSet/"):
            found += [each for each in images_of(document) if isinstance(each[1], str)]
    images = dict.fromkeys(found)
    distinct = {str(image) for _, image in images}
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"{step}: {image}" for step, image in images)


def images_of(jobset: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield step and image of each container of a JobSet, except init containers; an image may be unknown."""
    for job in jobs_of(jobset):
        for container in job.pod.containers:
            image = section(container.document).get("image")
            if image is not None:
                yield job.name, image


def _text(value: Any) -> str:
    """Return a value as text; of a long one the beginning, with short fields first, and a digest."""
    whole = value
    if not isinstance(value, str):
        whole = json.dumps(value, sort_keys=True)
    if len(whole) <= LONGEST:
        return str(whole)
    if not isinstance(value, str):
        whole = json.dumps(_short_first(value))
    return f"{whole[: LONGEST - 20]}... {short_digest(value, _DIGITS)}"


def _short_first(value: Any) -> Any:
    """Return a value whose fields are in the order of their length."""
    if not isinstance(value, Mapping):
        return value
    fields = {name: _short_first(each) for name, each in sorted(value.items())}
    return dict(sorted(fields.items(), key=lambda field: len(json.dumps(field))))


def describe_run(
    result: Plan, written: WrittenJob, train_job: dict[str, Any], nodes: Any, rendered: RenderedJob,
    *, restricted: bool, logs: bool,
) -> dict[str, str]:  # fmt: skip
    """Return what identifies the inputs of the run: name -> text."""
    arguments = result.arguments
    if arguments is None:
        arguments = written.func_args.document
    data = {**_named_data(section(train_job, "spec", "initializer")), **result.job.data}
    code, trainer, compiled = written.fields["code"], train_job["spec"]["trainer"], written.compiled
    revision = compiled.tree.revision if compiled.tree is not None else ""
    found = describe_inputs(
        code, trainer, arguments, result.job.runtime, data, rendered.made, revision, compiled.script_name
    )
    server = section(written.fields, "generation")
    found |= describe_nodes(nodes, written.fields["trainer"], server, result.secret_name)
    if restricted:
        found["hardening"] = "restricted"
    commit = _commit_of(written)
    if commit:
        found[COMMIT] = commit
    if written.tool is not None and "save_strategy" in table(written.tool.tool)["fields"]:
        batch = describe_batch(section(written.func_args.visible).get("config"), rendered.jobsets.values())
        found |= {BATCH: batch} if batch else {}
    if logs:
        found[LOGS] = KEEP
    tracking = describe_tracking(section(written.fields, "tracking"), trainer.get("env"))
    if tracking:
        found[TRACKING] = tracking
    return found


def _commit_of(written: WrittenJob) -> str:
    """Return the commit of the project whose files travel, else of the program, whose function or configuration does; empty if
    that is in no repository, or named with the code."""
    tree = written.compiled.tree
    if not written.fields["code"] or (tree is not None and tree.revision):
        return ""
    folder = Path.cwd()
    if tree is not None and tree.folder is not None:
        folder = tree.folder
    return describe_commit(folder.absolute())


def _named_data(initializer: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return kind -> name of the data that is fetched inside the job, whose version the plan does not know."""
    found = {}
    for kind, source in initializer.items():
        uri = section(source).get("storageUri")
        if isinstance(uri, str):
            found[kind] = {"name": uri, "version": ""}
    return found
