"""Rules about data that ends with its Pod, while another Pod or the next start looks for it."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import any_unknown, first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.kubernetes.views import entries
from pulumi_trainer.provider.pod.code import WORKSPACE
from pulumi_trainer.provider.trainer.admission.storage_uris import repository_problem
from pulumi_trainer.provider.trainer.admission.warnings.pods import mounts_without_volume
from pulumi_trainer.provider.trainer.admission.warnings.view import (
    Step,
    View,
    number,
    value_or_unknown,
    values_or_unknown,
)
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER
from pulumi_trainer.provider.trainer.pipeline.plugins.jobset import STORAGE_URI

PASSING = ("configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "projected", "secret")
"""Volumes that end with the Pod, or that nobody can write to."""
UNCOUNTED = ("RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts")
"""Actions of a failurePolicy that restart without using maxRestarts."""

_WRITTEN = re.compile(
    r"(.*[._])?((output|save|out|checkpoint|checkpoints|ckpt)[._]?(dir|path|folder)|default_root_dir|work_dir)"
    r"|output|save|hydra[.]run[.]dir"
)
"""Names of options and variables for a folder that a program writes to, in lower case with `_`."""
_SWITCHES = ("output", "save")
"""Those of them whose value is a folder only if it is an absolute path."""
_RELATIVE = re.compile(r"(?!\w+:)[\w.][\w.+/@-]*")
"""A relative path: no URI, variable or option."""
_READ = re.compile(
    r"checkpointer[._]checkpoint_dir|ckpt_path|checkpoint_path|.*(pretrained|model|base|init|load|resume)[._].*"
)
"""Those that often name a folder of the image or of the input."""
_UPLOADS = re.compile(r"\b(aws|gsutil|gcloud|rclone|rsync|azcopy|s5cmd|push_to_hub)\b")
_CLAIM = "a PersistentVolumeClaim, or one of volumeClaimPolicies"


def lasting_mounts(step: Step, *, writable: bool = False) -> dict[Any, str] | None:
    """Return the mounted volumes of a step (that a container can write to) that outlive its Pods, by name with their sources;
    None if they are not all known.
    """
    spec = value_or_unknown(step.document, "template", "spec", "template", "spec")
    parts = [spec, *(value_or_unknown(spec, part) for part in ("volumes", "containers", "initContainers"))]
    within = [*chain.from_iterable(map(listed, parts))]
    mounts = values_or_unknown(within, "volumeMounts")
    if (
        any_unknown([*parts, *within, *mounts])
        or first_unknown([*chain.from_iterable(map(listed, mounts))]) is not None
    ):
        return None
    sources = {volume.get("name"): volume for volume in step.pod.volumes}
    found: dict[Any, str] = {}
    for mount in step.pod.mounts:
        name = mount.get("name")
        source = sources.get(name, {"claim": name})  # JobSet mounts its claims by their names (`volumeClaimPolicies`)
        if source.keys().isdisjoint(PASSING) and not (writable and mount.get("readOnly") is True):
            found[name] = _identity(source)
    return found


def _identity(volume: Document) -> str:
    claim = section(volume, "persistentVolumeClaim").get("claimName")
    if claim is not None:
        return f"claim {claim}"
    return json.dumps({key: value for key, value in volume.items() if key != "name"}, sort_keys=True, default=str)


def loses_all(step: Step) -> bool:
    """Return whether a step mounts no volume that it can write to and that outlives its Pods."""
    return lasting_mounts(step, writable=True) == {}


def passing_data(view: View) -> Iterator[Problem]:
    """Yield initializers whose data the Pods that train never see."""
    trainer = view.worker
    if trainer is None or not view.steps_known or any(mounts_without_volume(view)):
        return
    for kind, ancestor in (("dataset", DATASET_INITIALIZER), ("model", MODEL_INITIALIZER)):
        step = next((step for step in view.steps if step.ancestor == ancestor), None)
        if step is None or not _fetches(view, kind):
            continue
        written, read = lasting_mounts(step, writable=True), lasting_mounts(trainer)
        folder = f"{WORKSPACE}/{kind}"
        if written == {}:
            where, volume = _volume_at(step, ancestor, folder)
            why = f"{volume}: what {step.name} fetches into {folder} ends with its Pod, and {trainer.name} does not find it"
            yield Problem(where, why, f"mount the same volume in both steps: {_CLAIM}")
        elif written and read is not None and _are_others(written, read):
            why = f"{trainer.name} does not mount {' or '.join(written)}, where {step.name} puts the {kind}"
            yield Problem(f"{trainer.pod.at}.volumes", why, f"mount it at {WORKSPACE} in {trainer.name} too")
        elif written and read is not None:
            yield from _other_folders(step, trainer, kind, written, read)


def _other_folders(
    step: Step, trainer: Step, kind: str, written: dict[Any, str], read: dict[Any, str]
) -> Iterator[Problem]:
    """Yield the folder of Trainer's own initializer if it lies beside the lasting volume, or if the Pods that train mount another
    part of that volume.
    """
    container = next((each.document for each in step.pod.containers if each.name == step.ancestor), {})
    if not _IMAGE.search(text(container.get("image"))):
        return  # other images may write to any folder
    folder = f"{WORKSPACE}/{kind}"
    mount = _mount_at(container, folder)
    source = written.get(mount.get("name"))
    if source is None:
        where, volume = _volume_at(step, text(step.ancestor), folder)
        why = f"{volume}: what {step.name} fetches into {folder} ends with its Pod, and {trainer.name} does not find it"
        yield Problem(where, why, f"mount {' or '.join(map(str, written))} at {WORKSPACE}")
        return
    mounts = [each for each in trainer.pod.mounts if read.get(each.get("name")) == source]
    if not mounts or "subPathExpr" in chain(mount, *mounts):
        return
    part = posixpath.join(text(mount.get("subPath")), posixpath.relpath(folder, text(mount.get("mountPath"))))
    parts = [text(each.get("subPath")) for each in mounts]
    if not any(_is_within(part, other) or _is_within(other, part) for other in parts):
        written_to = f"{step.name} puts the {kind} into {part} of {mount.get('name')}"
        why = f"{written_to}, and {trainer.name} mounts {' and '.join(parts)} of it"
        yield Problem(f"{trainer.pod.at}.volumes", why, "give both mounts the same subPath, or none")


def _is_within(path: str, folder: str) -> bool:
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return folder == "." or f"{path}/".startswith(f"{folder}/")


def early_starts(view: View) -> Iterator[Problem]:
    """Yield initializers for whose end the step that trains does not wait."""
    trainer = view.first_trainer
    depends = [each.document.get("dependsOn") for each in view.steps]
    if trainer is None or not view.steps_known or first_unknown(depends) is not None:
        return
    for kind, ancestor in (("dataset", DATASET_INITIALIZER), ("model", MODEL_INITIALIZER)):
        step = next((step for step in view.steps if step.ancestor == ancestor), None)
        if step is None or step is trainer or not _fetches(view, kind) or step.name in _awaited(view, trainer):
            continue
        why = f"{trainer.name} does not wait for the end of {step.name}, and starts while the {kind} is not complete"
        entry = json.dumps({"name": step.name, "status": "Complete"})
        yield Problem(f"{trainer.at}.dependsOn", why, f"add {entry} in the runtime; ignore this if the program waits")


def _awaited(view: View, step: Step) -> set[Any]:
    """Return the names of the steps that have ended before a step starts."""
    found = set[Any]()
    for each in step.depends_on:
        name = each.get("name")
        other = view.step(text(name))
        if other is not None and other.place < step.place:
            found |= _awaited(view, other) | ({name} if each.get("status") == "Complete" else set())
    return found


_IMAGE = re.compile(r"(^|/)(dataset|model)-initializer([:@]|$)")
"""Images of Trainer's initializers, in any registry."""
_SERVED = {"dataset": ("hf", "s3", "cache"), "model": ("hf", "s3")}
"""Schemes of Trainer's initializers: https://github.com/kubeflow/trainer/tree/v2.3.0/pkg/initializers."""


def unserved_uris(view: View) -> Iterator[Problem]:
    """Yield storage URIs that Trainer's initializers do not support, and end with an error."""
    for kind, uri in _uris_of_trainers_images(view):
        served = _SERVED[kind]
        scheme, separator, _ = uri.partition("://")
        if separator and scheme.lower() not in served:
            why = f"{scheme}:// is not supported by Trainer's {kind}-initializer, which ends with an error"
            forms = " or ".join(f"{each}://..." for each in served)
            hint = f"supported are {forms}; for another scheme give the step an image of your own"
            yield Problem(f"spec.initializer.{kind}.storageUri", why, hint)


def unsupported_parts(view: View) -> Iterator[Problem]:
    """Yield `hf://` URIs of which Trainer's initializers do not fetch what they name."""
    for kind, uri in _uris_of_trainers_images(view):
        found = repository_problem(uri, kind)
        if found is not None:
            yield replace(found, where=f"spec.initializer.{kind}.storageUri")


def _uris_of_trainers_images(view: View) -> Iterator[tuple[str, str]]:
    """Yield kind and storage URI of each initializer that has Trainer's own image."""
    for step in view.steps:
        kind = text(step.ancestor).partition("-")[0]
        for container in step.pod.containers:
            image = text(container.document.get("image"))
            if kind in _SERVED and container.name == step.ancestor and _IMAGE.search(image):
                uris = [text(each.get("value")) for each in container.env if each.get("name") == STORAGE_URI]
                yield from ((kind, uri) for uri in uris[-1:])


def _fetches(view: View, kind: str) -> bool:
    """Return whether the job has an initializer that writes files; one of a distributed cache (`cache://`) does not."""
    given = section(view.train_job, "spec", "initializer").get(kind)
    if not isinstance(given, dict) or first_unknown(given) is not None:
        return False
    uris = [
        given.get("storageUri"),
        *(each.get("value") for each in listed(given.get("env")) if each.get("name") == STORAGE_URI),
    ]
    return not any(str(uri).startswith("cache://") for uri in uris)


def _are_others(written: dict[Any, str], read: dict[Any, str]) -> bool:
    """Return whether two steps mount different volumes; those of other kinds than claims may have the same files."""
    both = [*written.values(), *read.values()]
    claims = all(source.startswith(("claim ", '{"claim"')) for source in both)
    return not read or (claims and {*written.values()}.isdisjoint(read.values()))


def _volume_at(step: Step, container: str, path: str) -> tuple[str, str]:
    """Return where the volume of a path is declared, and what it is."""
    document = next((each.document for each in step.pod.containers if each.name == container), {})
    name = _mount_at(document, path).get("name")
    for at, volume in entries(step.pod.spec, "volumes", step.pod.at):
        if name is not None and volume.get("name") == name:
            kind = next((kind for kind in PASSING if kind in volume), "volume")
            return at, f"{name} ({kind}) belongs to one Pod"
    return f"{step.pod.at}.volumes", f"{step.name} mounts no volume at {path}"


def _mount_at(container: Document, path: str) -> Document:
    """Return the mount of a container at a path or above it; empty if it has none there."""
    best, found = "", Document()
    for mount in map(section, listed(container.get("volumeMounts"))):
        at = posixpath.normpath(text(mount.get("mountPath")) or "/")
        if f"{path}/".startswith(f"{at.rstrip('/')}/") and len(at) > len(best):
            best, found = at, mount
    return found


def lost_checkpoints(view: View) -> Iterator[Problem]:
    """Yield a folder for checkpoints that is empty again after each restart of the job."""
    restarts, step, container = _restarts(view), view.worker, view.worker_container
    if not restarts or step is None or container is None or view.variable(CHECKPOINT_DIR):
        return
    if first_unknown([container, *listed(step.pod.spec.get("volumes"))]) is not None or _uploads(view, step):
        return
    for option, given in _written_paths(view):
        path = _absolute(given, container, step)
        if path is None:
            continue
        name = _mount_at(container, path).get("name")
        volume = next((each for each in step.pod.volumes if each.get("name") == name), None)
        if name is not None and (volume is None or volume.keys().isdisjoint(("emptyDir", "ephemeral"))):
            continue
        where, what = _volume_at(step, text(container.get("name")), path)
        why = f"{option} names {path}, and {what}: the folder is empty again after each of {restarts}, and training begins anew"
        yield Problem(where, why, f"mount {_CLAIM}, or use output=True of TrainJob with its TRAINER_OUTPUT_DIR")
        return


def _absolute(path: str, container: Document, step: Step) -> str | None:
    """Return a path from the root of a container; None if it depends on the working directory of the image, and a volume that
    lasts may be mounted there.
    """
    folder = container.get("workingDir")
    if path.startswith("/"):
        return posixpath.normpath(path)
    if isinstance(folder, str) and folder.startswith("/"):
        return posixpath.normpath(posixpath.join(folder, path))
    return path if folder is None and loses_all(step) else None


def _restarts(view: View) -> str:
    """Return the restarts with new Pods that a job declares; empty if there are none, or they are not known."""
    worker = view.worker
    retries = number(section(worker.document, "template", "spec").get("backoffLimit")) if worker else 0
    if worker and retries and worker.pod.spec.get("restartPolicy") == "Never":
        return f"{plural(retries, 'restart')} of a Pod (backoffLimit)"
    policy = section(view.jobset, "spec", "failurePolicy")
    if first_unknown(policy) is not None or policy.get("restartStrategy") == "InPlaceRestart":
        return ""
    count = number(policy.get("maxRestarts")) or 0
    if count > 0:
        return f"{plural(count, 'restart')} (maxRestarts)"
    if any(section(rule).get("action") in UNCOUNTED for rule in listed(policy.get("rules"))):
        return "its restarts (failurePolicy.rules)"
    return ""


def _uploads(view: View, step: Step) -> bool:
    """Return whether something may take the files of the training elsewhere: another container, or a part of the command."""
    beside = [each for each in step.pod.all_containers if not (each.is_init and not each.is_sidecar)]
    return len(beside) > 1 or bool(_UPLOADS.search(" ".join(view.words or ())))


def _written_paths(view: View) -> Iterator[tuple[str, str]]:
    """Yield options of the command, and variables, that name a folder to write to, with the folder."""
    words = " ".join(view.words or ()).split()
    given = [(word, after) for word, after in pairwise(words) if word.startswith("-") and "=" not in word]
    for word in words:
        option, equals, value = word.partition("=")
        if equals:
            given.append((option, value))
    given += [(text(each.get("name")), text(each.get("value"))) for each in view.env]
    for option, value in given:
        name = option.lstrip("-").replace("-", "_").lower()
        path = value.strip("\"'")
        relative = name not in _SWITCHES and _RELATIVE.fullmatch(path)
        if (path.startswith("/") or relative) and _WRITTEN.fullmatch(name) and not _READ.fullmatch(name):
            yield option, path
