"""Rules about containers and steps that never end, or never begin."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, texts
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kubernetes.views import Container
from pulumi_trainer.provider.trainer.admission.warnings.launchers import SHELLS
from pulumi_trainer.provider.trainer.admission.warnings.view import Step, View, value_or_unknown
from pulumi_trainer.provider.trainer.pipeline.info import NODE

_RUNS_ON = re.compile(
    r"(?:(?:^|(?<=[\s/;]))sshd\b[^;&|]{0,200}\s-\w*D\w*"
    r"|\bsleep inf(?:inity)?\b|\btail (?:-\w*[fF]|--follow)|\bwhile (?:true|:)\s*;)"
    r"(?=[^;&|]{0,500}(?:$|;|&&|\|))"
)
"""Commands in the foreground that do not end."""
_MAY_END = re.compile(r"\b(break|exit|return|kill)\b|--pid\b|\bdone\b[^;&|]{0,200}&(?!&)")
"""Parts of scripts whose loops end, or run in the background."""
_MAY_DECIDE = re.compile(r"\|\||\b(if|case|until|trap)\b")
"""Parts of scripts that run a command only sometimes."""
_TRAINS = re.compile(r"python|torchrun|\.py\b|\b(accelerate|deepspeed|mpirun)\b")
"""Parts of scripts that do more than to keep a Pod for its user."""
_SERVERS = re.compile(
    r"(^|[-_.])(shipper|forwarder|exporter|proxy|daemon|agent|collector|monitor|server|serve|sshd|git-sync|tensorboard|jupyter|mlflow"
    r"|fluentd|fluent|promtail|filebeat|vector|envoy|telegraf|otelcol|statsd|prometheus|nginx|redis|vllm)($|[-_.\d])"
)
"""Parts of names of programs that run on."""
_ENDS = re.compile(r"(^|[-_.])(wait|init|check|copy|setup|install|download|fetch|prepare|once|test|validate)($|[-_.])")
"""Parts of names of programs that end."""
_ENDS_BY_OPTION = re.compile(r"\s--?(once|one[-_]time|version|validate|check|exit-after-auth)(=|\s|$)")
_AS_SIDECAR = (
    "move it to initContainers with restartPolicy: Always: Kubernetes ends such a sidecar after the other containers"
)


def second_containers(view: View) -> Iterator[Problem]:
    """Yield containers beside the one that works, for which the Job of a step waits as well.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#sidecar-example
    """
    if first_unknown([value_or_unknown(view.runtime, "spec", "mlPolicy")]) is not None:
        return
    for step in view.steps:
        main, waiting = _main(step), _what_waits(view, step)
        if main is None or not waiting:
            continue
        for container in step.pod.containers:
            if container is main or _trains_too(view, step, container) or not isinstance(container.name, str):
                continue
            reason = _reason_to_run_on(container, container.name) or _ports(container)
            if reason:
                why = (
                    f"{reason}, and a Job waits for all containers of its Pods: after {main.name} has ended, {waiting}"
                )
                yield Problem(container.at, why, _AS_SIDECAR)


def _main(step: Step) -> Container | None:
    """Return the container that does the work of a step; None if there is one container only, or it is not known."""
    containers = step.pod.containers
    if len(containers) < 2 or first_unknown([each.name for each in containers]) is not None:
        return None
    return next((each for each in containers if each.name in (NODE, step.ancestor)), None)


def _trains_too(view: View, step: Step, container: Container) -> bool:
    """Return whether Trainer gives a second container the variables that connect nodes."""
    targets = items((view.policy("torch") or {}).get("envInjection"), "targets")
    own = [texts(each.get("containerNames")) for each in targets if each.get("jobName") == step.name]
    return any(container.name in names for names in own)


def _what_waits(view: View, step: Step) -> str:
    """Return what does not come about before a step is complete; empty if nothing waits for it."""
    later = view.later_steps.get(str(step.name))
    if later:
        return f"{join_names([str(other.name) for other in later])} never begins"
    policy = view.success_policy
    if policy is None or step.name not in policy.steps or (policy.one_is_enough and len(policy.steps) > 1):
        return ""
    return "the job is never complete"


def endless_init_containers(view: View) -> Iterator[Problem]:
    """Yield init containers that run on, for whose end the other containers wait."""
    for step in view.steps:
        for container in step.pod.init_containers:
            reason = _reason_to_run_on(container)
            if not container.document.get(
                "command"
            ):  # one with a command of its own often has the ports of a copied spec
                reason = reason or _ports(container)
            if reason and not container.is_sidecar and first_unknown(container.document) is None:
                why = f"{reason}, and the containers of {step.name} start only after its end: they never begin"
                yield Problem(
                    container.at, why, "add restartPolicy: Always: such a sidecar runs beside the other containers"
                )


def endless_steps(view: View) -> Iterator[Problem]:
    """Yield steps beside the trainer that run on, such as MPI's nodes with sshd, and for which the job waits."""
    if not view.steps_known:
        return
    reasons = ["".join([*filter(None, map(_reason_to_run_on, step.pod.containers))][:1]) for step in view.steps]
    ending = [str(step.name) for step, reason in zip(view.steps, reasons, strict=True) if not reason]
    policy = json.dumps({"operator": "All", "targetReplicatedJobs": ending})
    for step, reason in zip(view.steps, reasons, strict=True):
        waiting = _what_waits(view, step)
        if step is view.first_trainer:
            yield from _endless_training(step, waiting)
            continue
        if not reason or not waiting or step.pods == 0:
            continue
        later = view.later_steps.get(str(step.name))
        where, hint = "spec.template.spec.successPolicy", f"name the steps that end, in the runtime: {policy}"
        if later:
            where, hint = f"{later[0].at}.dependsOn", "write status: Ready"
        yield Problem(where, f"waits for the end of {step.name}, but {reason}: {waiting}", hint)


def _endless_training(step: Step, waiting: str) -> Iterator[Problem]:
    """Yield that the command that trains does not end, except one of a shell that decides by itself."""
    main = next((each for each in step.pod.containers if each.name == NODE), None)
    if main is None or not waiting or _MAY_DECIDE.search(_text(main)) or not _TRAINS.search(_text(main)):
        return
    reason = _endless_command(main)
    if reason:
        yield Problem(
            main.at, f"{reason}: {waiting}, and its Pods keep their nodes", "let the command end with the training"
        )


def _endless_command(container: Container) -> str:
    """Return that a container runs a command that does not end; empty if it may end."""
    text = _text(container)
    command = _RUNS_ON.search(text)
    if command is None or _MAY_END.search(text):
        return ""
    return f"{container.name} runs `{command[0]}`, which does not end"


def _reason_to_run_on(container: Container, *names: str) -> str:
    """Return why a container runs on: its command, or the name of its program; empty if it may end."""
    endless = _endless_command(container)
    if endless:
        return endless
    if _may_end(container) or not any(_SERVERS.search(name.lower()) for name in (_program(container), *names)):
        return ""
    return f"{container.name} looks like a program that runs on"


def _ports(container: Container) -> str:
    """Return that a container serves ports, which one that ends seldom does; empty if it may end."""
    if not container.ports or _may_end(container):
        return ""
    return f"{container.name} serves ports and looks like a program that runs on"


def _may_end(container: Container) -> bool:
    """Return whether a shell runs a container, which may do anything, or a name or option tells that it ends."""
    program = _program(container)
    ends = any(_ENDS.search(str(name).lower()) for name in (container.name, program))
    return ends or program in SHELLS or bool(_ENDS_BY_OPTION.search(_text(container)))


def _text(container: Container) -> str:
    """Return the command and arguments of a container; empty if it has none, or they are not known."""
    words = [*listed(container.document.get("command")), *listed(container.document.get("args"))]
    return " ".join(word for word in words if isinstance(word, str)).replace("\n", "; ")


def _program(container: Container) -> str:
    """Return the name of the program of a container, or that of its image if it has no command."""
    words = texts(container.document.get("command"))
    if words and words[0].rpartition("/")[2].startswith("python"):
        words = [word for word in [*words[1:], *texts(container.document.get("args"))] if not word.startswith("-")]
    if words:
        return words[0].rpartition("/")[2]
    return str(container.document.get("image")).partition("@")[0].rpartition("/")[2].partition(":")[0]
