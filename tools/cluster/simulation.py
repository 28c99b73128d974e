"""Simulated GPU nodes and the pods on them: what KWOK does with a pod, said by annotations of the pod.

| annotation (of the pod template) | meaning |
| --- | --- |
| sim/outcome | succeed (of pods that belong to a Job, if nothing is said), fail (with restartPolicy OnFailure or Always: crashloop, as a kubelet does), podfail (whatever the restartPolicy is: an eviction), crashloop, imagepull, forever (of other pods, if nothing is said) |
| sim/start, sim/run | from scheduled to running (300 ms), from running to the outcome (2 s); durations of Go |
| sim/backoff, sim/term | of a crashloop, until the next try (2 s); of a deleted pod, until it has ended (200 ms) |
| sim/exit-code, sim/reason, sim/message | what a container that failed reports (1, Error, nothing) |
| sim/only-index, sim/only-job-index, sim/only-attempt | the outcome is that of pods with this completion index, job index, attempt of the JobSet ("0": only the first); the others succeed |
| sim/disruption | a failed pod has the condition DisruptionTarget |

A node with the label `sim/node: notready` is not ready. Called by cluster.py. Source of the stages' format:
https://github.com/kubernetes-sigs/kwok/blob/v0.8.0/pkg/apis/v1alpha1/stage_types.go
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from .manifests import documents

Object = dict[str, Any]

OUTCOME = """
(.metadata.annotations // {}) as $a | ($a + (.metadata.labels // {})) as $all |
[["sim/only-index", "batch.kubernetes.io/job-completion-index"], ["sim/only-job-index", "jobset.sigs.k8s.io/job-index"],
 ["sim/only-attempt", "jobset.sigs.k8s.io/restart-attempt"]] as $filters |
any(.metadata.ownerReferences[]?; .kind == "Job") as $job | (.spec.restartPolicy // "Always") as $policy |
if any($filters[]; $a[.[0]] != null and $a[.[0]] != $all[.[1]]) then "succeed"
else ($a["sim/outcome"] // (if $job then "succeed" else "forever" end)) |
  if . == "podfail" then "fail" elif . == "fail" and $policy != "Never" then "crashloop" else . end
end
""".replace("\n", " ").strip()
"""In jq: what becomes of a pod."""
WAITING = ".status.containerStatuses.[0].state.waiting.reason"
READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
DELETED = ".metadata.deletionTimestamp"
DOWN = '.metadata.labels["sim/node"]'

# --- templates of a pod's status ------------------------------------------------------------------------------------------

START = """
{{ $now := Now }}
{{ $pod := . }}
{{ $a := or .metadata.annotations dict }}
{{ $code := or (index $a "sim/exit-code") "1" }}
{{ $reason := or (index $a "sim/reason") "Error" }}
{{ $message := or (index $a "sim/message") "" }}
"""
ADDRESSES = """
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs: [{{ range $i, $ip := . }}{{ if $i }}, {{ end }}{ip: {{ $ip | Quote }}}{{ end }}]
{{ end }}
{{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") }}
podIP: {{ index . 0 | Quote }}
podIPs: [{{ range $i, $ip := . }}{{ if $i }}, {{ end }}{ip: {{ $ip | Quote }}}{{ end }}]
{{ end }}
startTime: {{ $now | Quote }}
"""  # noqa: E501
INIT = """
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  started: false
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
"""
RUNS = "running: {startedAt: {{ $now | Quote }}}"


def _conditions(ready: str, reason: str = "", more: str = "") -> str:
    why = f", reason: {reason}" if reason else ""
    lines = ['- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}']
    for kind in ("Ready", "ContainersReady"):
        lines.append(f'- {{type: {kind}, status: "{ready}", lastTransitionTime: {{{{ $now | Quote }}}}{why}}}')
    return "conditions:\n" + "\n".join(lines) + "\n" + more


def _containers(
    state: str, *, ready: bool = False, restarts: str = "$restarts", last: str = "", pulled: bool = True
) -> str:
    """One status a container, with what it had before in $restarts, $begun and $ran."""
    image = '{{ $c.image | Quote }}\n  containerID: {{ printf "kwok://%s/%s" $pod.metadata.uid $c.name | Quote }}'
    word = str(ready).lower()
    return f"""
containerStatuses:
{{{{ range $i, $c := .spec.containers }}}}
{{{{ $restarts := 0 }}}}
{{{{ $begun := $now }}}}
{{{{ $ran := false }}}}
{{{{ with $pod.status.containerStatuses }}}}{{{{ with index . $i }}}}
{{{{ $restarts = or .restartCount 0 }}}}
{{{{ with .state }}}}{{{{ with .running }}}}{{{{ $begun = .startedAt }}}}{{{{ $ran = true }}}}{{{{ end }}}}{{{{ end }}}}
{{{{ end }}}}{{{{ end }}}}
- name: {{{{ $c.name | Quote }}}}
  image: {{{{ $c.image | Quote }}}}
  imageID: {image if pulled else '""'}
  ready: {word}
  started: {word}
  restartCount: {{{{ {restarts} }}}}
  state: {{ {state} }}
{f"  lastState: {{ {last} }}" if last else ""}
{{{{ end }}}}
"""


def _ended(code: str, reason: str, message: str = '""') -> str:
    return (
        f"terminated: {{exitCode: {code}, reason: {reason}, message: {message}, "
        "startedAt: {{ $begun | Quote }}, finishedAt: {{ $now | Quote }}}"
    )


FAILED = _ended("{{ $code }}", "{{ $reason | Quote }}", "{{ $message | Quote }}")
CUT_OFF = (
    "{{ if $ran }}" + _ended("143", "Error") + "{{ else }}" + _ended("137", "ContainerStatusUnknown") + "{{ end }}"
)
DISRUPTED = """{{ if index $a "sim/disruption" }}
- {type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI, message: "Eviction API: evicting", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
"""  # noqa: E501


def _waits(reason: str, message: str) -> str:
    return f"waiting: {{reason: {reason}, message: {{{{ {message} | Quote }}}}}}"


# --- stages ---------------------------------------------------------------------------------------------------------------


def _in(key: str, *values: str) -> Object:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> Object:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _stage(kind: str, name: str, when: list[Object], after: Object) -> Object:
    spec = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": when}, **after}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _pod(
    name: str, phases: tuple[str, ...], outcomes: tuple[str, ...], status: str, *,
    after: int, told: str = "", when: tuple[Object, ...] = (), event: tuple[str, str, str] | None = None,
) -> Object:  # fmt: skip
    """A pod that is in one of these phases and will have one of these outcomes gets the status after so many ms, or after
    what its annotation `told` says."""
    delay: Object = {"durationMilliseconds": after}
    if told:
        delay["durationFrom"] = {"expressionFrom": f'.metadata.annotations["sim/{told}"]'}
    next_: Object = {"statusTemplate": START + status}
    if event:
        next_["event"] = dict(zip(("type", "reason", "message"), event, strict=True))
    chosen = [{"key": DELETED, "operator": "DoesNotExist"}, _in(".status.phase", *phases), _in(OUTCOME, *outcomes)]
    return _stage("Pod", name, [*chosen, *when], {"delay": delay, "next": next_})


def pod_stages() -> list[Object]:
    """The life of a pod on a simulated node."""
    pulling, crashed = ("ErrImagePull", "ImagePullBackOff"), "CrashLoopBackOff"
    missing = 'printf "failed to pull and unpack image %q: not found" $c.image'
    back_off = 'printf "back-off 10s restarting failed container=%s pod=%s" $c.name $pod.metadata.name'
    pull_back_off = 'printf "Back-off pulling image %q" $c.image'
    return [
        _pod(
            "pod-start", ("Pending",), ("succeed", "fail", "crashloop", "forever"),
            _conditions("True") + _containers(RUNS, ready=True) + INIT + ADDRESSES + "phase: Running\n",
            after=300, told="start", when=(_not_in(READY, "True"),), event=("Normal", "Started", "Started container"),
        ),
        _pod(
            "pod-image-missing", ("Pending",), ("imagepull",),
            _conditions("False", "ContainersNotReady") + _containers(_waits(pulling[0], missing), pulled=False) + ADDRESSES,
            after=500, told="start", when=(_not_in(WAITING, *pulling),), event=("Warning", "Failed", "Error: ErrImagePull"),
        ),
        _pod(
            "pod-image-back-off", ("Pending",), ("imagepull",), _containers(_waits(pulling[1], pull_back_off), pulled=False),
            after=3000, told="backoff", when=(_in(WAITING, pulling[0]),), event=("Warning", "BackOff", "Back-off pulling image"),
        ),
        _pod(
            "pod-succeed", ("Running",), ("succeed",),
            _conditions("False", "PodCompleted") + _containers(_ended("0", "Completed")) + "phase: Succeeded\n",
            after=2000, told="run",
        ),
        _pod(
            "pod-fail", ("Running",), ("fail",),
            _conditions("False", "PodFailed", DISRUPTED) + _containers(FAILED) + "phase: Failed\n", after=2000, told="run",
        ),
        _pod(
            "pod-crash", ("Running",), ("crashloop",),
            _conditions("False", "ContainersNotReady") + _containers(_waits(crashed, back_off), last=FAILED),
            after=1000, told="run", when=({"key": ".status.containerStatuses.[0].state.running", "operator": "Exists"},),
            event=("Warning", "BackOff", "Back-off restarting failed container"),
        ),
        _pod(
            "pod-try-again", ("Running",), ("crashloop",),
            _conditions("True") + _containers(RUNS, ready=True, restarts="add $restarts 1", last=FAILED),
            after=2000, told="backoff", when=(_in(WAITING, crashed),),
        ),
        _stage(
            "Pod", "pod-terminate", [{"key": DELETED, "operator": "Exists"}, _in(".status.phase", "Pending", "Running")],
            {
                "delay": {"durationMilliseconds": 200, "durationFrom": {"expressionFrom": '.metadata.annotations["sim/term"]'}},
                "next": {"statusTemplate": START + _conditions("False", "PodFailed") + _containers(CUT_OFF) + "phase: Failed\n"},
            },
        ),
        _stage(
            "Pod", "pod-remove", [{"key": DELETED, "operator": "Exists"}, _in(".status.phase", "Failed", "Succeeded")],
            {"delay": {"durationMilliseconds": 0}, "next": {"delete": True}},
        ),
    ]  # fmt: skip


def node_stages(module: Path) -> list[Object]:
    """KWOK's own for a node that is well, and one for a node that is not.

    module: KWOK's, as it was built.
    """
    nodes = module / "kustomize/stage/node"
    files = (nodes / "fast/node-initialize.yaml", nodes / "heartbeat-with-lease/node-heartbeat-with-lease.yaml")
    stages = [document for file in files for document in documents(file)]
    for stage in stages:
        stage["spec"]["selector"]["matchExpressions"].append(_not_in(DOWN, "notready"))
    status = """{{ $now := Now }}
conditions:
- {type: Ready, status: "False", reason: KubeletNotReady, message: "container runtime is down",
   lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
"""
    down = _stage(
        "Node", "node-down", [_in(DOWN, "notready"), _in(READY, "True")], {"next": {"statusTemplate": status}}
    )
    return [*stages, down]


def write_stages(module: Path, file: Path) -> None:
    """All stages, as KWOK reads them."""
    file.write_text(yaml.safe_dump_all([*pod_stages(), *node_stages(module)], sort_keys=False, width=10000))


def node(index: int, gpus: int, labels: Mapping[str, str]) -> Object:
    """A node gpu-INDEX. Two nodes a rack (`sim/rack`), two racks a block (`sim/block`)."""
    name = f"gpu-{index}"
    capacity = {"cpu": "96", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    known = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": f"sim.h100x{gpus}", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": str(gpus), "topology.kubernetes.io/zone": "zone-0", "sim/pool": "gpu",
        "sim/block": f"b{index // 4}", "sim/rack": f"r{index // 2}",
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {**known, **labels}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }  # fmt: skip


# --- logs -----------------------------------------------------------------------------------------------------------------


def silence(folder: Path) -> Object:
    """What `logs` of any pod answers, as long as nothing else is said.

    folder: KWOK's, in which the files of logs lie.
    """
    _append(folder / "pod.log", ["a simulated pod prints nothing"])
    return _logs("ClusterLogs", {"name": "all"}, {"logsFile": folder / "pod.log"})


def pod_logs(folder: Path, namespace: str, pod: str, lines: Sequence[str], previous: Sequence[str]) -> Object:
    """What `logs` of this pod answers: these lines after those of earlier calls."""
    stem = folder / "logs" / namespace / pod
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {"logsFile": stem.with_name(f"{pod}.log"), "previousLogsFile": stem.with_name(f"{pod}.previous.log")}
    _append(files["logsFile"], lines)
    if previous:
        _append(files["previousLogsFile"], previous)
    return _logs("Logs", {"name": pod, "namespace": namespace}, files)


def _logs(kind: str, metadata: Mapping[str, str], files: Mapping[str, Path]) -> Object:
    entry = {key: str(file) for key, file in files.items() if file.exists()}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": dict(metadata), "spec": {"logs": [entry]}}


def _append(file: Path, lines: Sequence[str]) -> None:
    """In the format of container runtimes, which KWOK reads."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with file.open("a", encoding="utf-8") as out:
        out.writelines(f"{now} stdout F {line}\n" for line in lines)
