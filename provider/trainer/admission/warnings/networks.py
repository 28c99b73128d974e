"""Rules about the network of a namespace: proxies of a service mesh, NetworkPolicies, addresses of Pods that are not ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, name_of, section, text, texts
from pulumi_trainer.provider.kubernetes.values.label_selectors import matches_selector
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.queue_state import OTHER_POLICIES
from pulumi_trainer.provider.trainer.admission.warnings.view import DEFAULT_NAMESPACE, Step, View, number
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME


@dataclass(frozen=True)
class Mesh:
    """How a service mesh decides which Pods get a proxy.

    Args:
        part: Part of the metadata of Namespaces and Pods that decides: `labels` or `annotations`.
        namespace: Key in the metadata of the Namespace.
        pod: Key in the metadata of the Pod, which counts more.
        on: Values that add a proxy.
        off: Value of `pod` that adds none.
    """

    name: str
    part: str
    namespace: str
    pod: str
    on: tuple[str, ...]
    off: str

    def reason(self, namespace: Document, pod: Document) -> str:
        """Return why a Pod gets a proxy; empty if it gets none.

        Args:
            namespace: Metadata of the Namespace; empty if not known.
            pod: Metadata of the Pod template.
        """
        own = text(section(pod, self.part).get(self.pod) or section(pod, "annotations").get(self.pod))
        given = text(section(namespace, self.part).get(self.namespace))
        if own:
            return f"its Pods have {self.pod}: {own}" if own in self.on else ""
        if given in self.on:
            return f"Namespace {namespace.get('name')} has {self.namespace}: {given}"
        return ""


class _Istio(Mesh):
    def reason(self, namespace: Document, pod: Document) -> str:
        labels = section(namespace, "labels")
        if labels.get(self.namespace) == "disabled" or _is_bypassed(pod):
            return ""
        found = super().reason(namespace, pod)
        revision, own = text(labels.get(_REVISION)), text(section(pod, "labels").get(_REVISION))
        if found or section(pod, "labels").get(self.pod) or section(pod, "annotations").get(self.pod):
            return found
        if revision:
            return f"Namespace {namespace.get('name')} has {_REVISION}: {revision}"
        return own and f"its Pods have {_REVISION}: {own}"


_REVISION = "istio.io/rev"
_MESHES = (
    _Istio("Istio", "labels", "istio-injection", "sidecar.istio.io/inject", ("enabled", "true"), "false"),
    Mesh("Linkerd", "annotations", "linkerd.io/inject", "linkerd.io/inject", ("enabled", "ingress"), "disabled"),
    Mesh("Kuma", "labels", "kuma.io/sidecar-injection", "kuma.io/sidecar-injection", ("enabled", "true"), "disabled"),
)


def _is_bypassed(pod: Document) -> bool:
    """Return whether a Pod says which of its traffic Istio's proxy catches."""
    return any(str(key).startswith("traffic.sidecar.istio.io/") for key in section(pod, "annotations"))


def injected_proxies(view: View) -> Iterator[Problem]:
    """Yield that a service mesh adds a proxy to Pods of the job."""
    namespace = section(view.queues.find("Namespace", _namespace(view)), "metadata")
    for mesh in _MESHES:
        found: list[tuple[Step, str]] = []
        for step in view.steps:
            metadata = section(step.template, "metadata")
            if first_unknown(metadata) is None and step.pod.spec.get("hostNetwork") is not True:
                reason = mesh.reason(namespace, metadata)
                if reason:
                    found.append((step, reason))
        if found:
            yield _proxy_problem(view, mesh, found)


def _proxy_problem(view: View, mesh: Mesh, found: list[tuple[Step, str]]) -> Problem:
    step, reason = found[0]
    names = ", ".join(str(each.name) for each, _ in found)
    effects = []
    if _pairs(view):
        effects.append("it catches the ports of rendezvous, NCCL and gloo, and nodes may wait for one another")
    effects.append("unless it is a native sidecar, it keeps the Pods running after the training")
    why = f"{reason}: {mesh.name} adds a proxy to the Pods of {names}; {', and '.join(effects)}"
    where = f"{step.at}.template.spec.template.metadata.{mesh.part}"
    kind = mesh.part.removesuffix("s")
    return Problem(where, why, f'set the {kind} {mesh.pod}: "{mesh.off}" there, or by a runtimePatch')


def _namespace(view: View) -> str:
    return text(section(view.jobset, "metadata").get("namespace")) or DEFAULT_NAMESPACE


def _pairs(view: View) -> list[tuple[Step, Step]]:
    """Return the steps whose Pods connect to one another: source and target."""
    if view.worker is None:
        return []
    launcher = view.first_trainer
    if launcher is not None and launcher is not view.worker:
        return [(launcher, view.worker), (view.worker, launcher)]
    return [(view.worker, view.worker)] if view.several_nodes else []


@dataclass(frozen=True)
class _Direction:
    name: str
    rules: str
    peers: str

    def of(self, policies: Iterable[Document], labels: Document) -> list[Document]:
        """Return the policies that isolate Pods with these labels in this direction."""
        found = []
        for policy in policies:
            spec = section(policy, "spec")
            types = texts(spec.get("policyTypes")) or ["Ingress", *(["Egress"] if "egress" in spec else [])]
            if self.name in types and matches_selector(section(spec, "podSelector"), labels):
                found.append(policy)
        return found

    def rules_of(self, policies: Iterable[Document]) -> list[Document]:
        return [*chain.from_iterable(items(section(policy, "spec"), self.rules) for policy in policies)]


_INGRESS = _Direction("Ingress", "ingress", "from")
_EGRESS = _Direction("Egress", "egress", "to")
_FREE_PORTS = (32768, 60999)
"""Ports from which Linux chooses those of NCCL and gloo."""
_DNS_PORT, _HTTPS_PORT = 53, 443
_SCHEMES = ("s3://", "hf://", "gs://")
_OTHER_POLICIES = "projectcalico.org"


def closed_networks(view: View) -> Iterator[Problem]:
    """Yield what the NetworkPolicies of the namespace keep from the Pods: each other, DNS, and data from outside."""
    namespace = _namespace(view)
    policies = view.queues.inside("NetworkPolicy", namespace)
    if not policies or any(_OTHER_POLICIES in text(policy.get("apiVersion")) for policy in policies):
        return
    if any(map(view.queues.of, OTHER_POLICIES)):
        return
    steps = [step for step in view.steps if step.pod.spec.get("hostNetwork") is not True]
    if first_unknown([*policies, *(section(step.template, "metadata") for step in steps)]) is not None:
        return
    labels = {str(step.name): _labels(view, step) for step in steps}
    yield from _between_pods(view, policies, labels)
    pairs = {str(source.name) for source, _ in _pairs(view)}
    for step in steps:
        isolating = _EGRESS.of(policies, labels[str(step.name)])
        if not isolating:
            continue
        rules = _EGRESS.rules_of(isolating)
        fetched = _uris(step)
        admit = f"{_admit(isolating)} no traffic from the Pods of {step.name}"
        if (str(step.name) in pairs or fetched) and not any(_admits_dns(view, rule) for rule in rules):
            why = f"{admit} to DNS: they find no address by its name"
            yield Problem(
                "metadata.namespace", why, f"add a policy with port 53 of the Pods in kube-system; {_COMPONENT}"
            )
        elif fetched and not any(map(_reaches_out, rules)):
            why = f"{admit} out of the namespace, but they read {fetched}"
            yield Problem("metadata.namespace", why, "add the addresses: NetworkPolicy(egress=[Egress(cidr=...)])")


_COMPONENT = "the component NetworkPolicy(job=...) writes both, DNS and the Pods of the job"


def _between_pods(view: View, policies: list[Document], labels: dict[str, Document]) -> Iterator[Problem]:
    """Yield the first direction in which Pods of the job do not reach each other."""
    for (source, target), direction in product(_pairs(view), (_INGRESS, _EGRESS)):
        if str(source.name) not in labels or str(target.name) not in labels:
            continue
        inside, other = (target, source) if direction is _INGRESS else (source, target)
        isolating = direction.of(policies, labels[str(inside.name)])
        if not isolating:
            continue
        peers = labels[str(other.name)]
        admitting = []
        for rule in direction.rules_of(isolating):
            given = listed(rule.get(direction.peers))
            if not given or any(_is_peer(view, section(peer), peers) for peer in given):
                admitting.append(rule)
        if any(map(_has_free_ports, admitting)):
            continue
        yield _closed(isolating, direction, inside, other, admitting)
        return


def _closed(
    isolating: list[Document], direction: _Direction, inside: Step, other: Step, admitting: list[Document]
) -> Problem:
    source, target = (other, inside) if direction is _INGRESS else (inside, other)
    between = f"between the Pods of {inside.name}"
    if source is not target:
        between = f"from the Pods of {source.name} to those of {target.name}"
    why = f"{_admit(isolating)} no traffic {between} ({direction.name}): they wait until the rendezvous times out"
    if admitting:
        listed = chain.from_iterable(items(rule, "ports") for rule in admitting)
        ports = sorted({str(port.get("port")) for port in listed})
        why = f"{_admit(isolating)} traffic {between} only at port {', '.join(ports)}: NCCL and gloo choose free ports"
    return Problem("metadata.namespace", why, f"add a policy with all ports between them; {_COMPONENT}")


def _admit(policies: list[Document]) -> str:
    names = ", ".join(map(name_of, policies))
    return f"NetworkPolicy {names} admits" if len(policies) == 1 else f"NetworkPolicies {names} admit"


def _labels(view: View, step: Step) -> Document:
    """Return the labels of a step's Pods, with those that JobSet and Job add."""
    job = f"{view.name}-{step.name}-0"
    return {
        **section(step.template, "metadata", "labels"),
        JOBSET_NAME: view.name,
        "jobset.sigs.k8s.io/replicatedjob-name": step.name,
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-name": job,
        "job-name": job,
    }


def _is_peer(view: View, peer: Document, labels: Document) -> bool:
    """Return whether a peer of a rule may be a Pod of the job; addresses count as its own, since nobody knows them."""
    if "ipBlock" in peer:
        return True
    if "podSelector" in peer and not matches_selector(section(peer, "podSelector"), labels):
        return False
    return "namespaceSelector" not in peer or view.may_select(section(peer, "namespaceSelector"), _namespace(view))


def _has_free_ports(rule: Document) -> bool:
    """Return whether a rule admits the ports that NCCL and gloo choose."""
    ports = items(rule, "ports")
    for each in ports:
        first, last = number(each.get("port")), number(each.get("endPort"))
        if each.get("protocol", "TCP") == "TCP" and (
            each.get("port") is None
            or (first is not None and last is not None and first <= _FREE_PORTS[0] and last >= _FREE_PORTS[1])
        ):
            return True
    return not ports


def _has_port(rule: Document, wanted: int) -> bool:
    ports = items(rule, "ports")
    for each in ports:
        first = number(each.get("port"))
        if first is None or first <= wanted <= (number(each.get("endPort")) or first):
            return True
    return not ports


def _admits_dns(view: View, rule: Document) -> bool:
    by_udp = [each for each in items(rule, "ports") if each.get("protocol") == "UDP"]  # resolvers ask by UDP first
    if rule.get("ports") and not (by_udp and _has_port({"ports": by_udp}, _DNS_PORT)):
        return False
    peers = [*map(section, listed(rule.get("to")))]
    for peer in peers:
        selector = section(peer, "namespaceSelector")
        if "ipBlock" in peer or ("namespaceSelector" in peer and view.may_select(selector, "kube-system")):
            return True
    return not peers


def _reaches_out(rule: Document) -> bool:
    """Return whether a rule may admit a server of data, outside of the cluster or in another namespace."""
    peers = [*map(section, listed(rule.get("to")))]
    ports = [number(each.get("port")) for each in items(rule, "ports")]
    only_dns = bool(ports) and all(port == _DNS_PORT for port in ports)
    return not only_dns and (not peers or any("ipBlock" in each or "namespaceSelector" in each for each in peers))


def _uris(step: Step) -> str:
    """Return the first scheme of a URI in a step's containers; empty for none, or if they name a server of their own."""
    for container in step.pod.all_containers:
        if any("ENDPOINT" in text(each.get("name")) for each in container.env):
            return ""
        values: list[Any] = [each.get("value") for each in container.env]
        values += [*listed(container.document.get("command")), *listed(container.document.get("args"))]
        for value in texts(values):
            scheme = next((each for each in _SCHEMES if value.startswith(each)), "")
            if scheme:
                return scheme
    return ""


def unpublished_addresses(view: View) -> Iterator[Problem]:
    """Yield nodes that find each other only when they are ready, and are ready only when a probe says so."""
    network = section(view.jobset, "spec", "network")
    if network.get("publishNotReadyAddresses") is not False or view.has_policy("mpi", "flux"):
        return
    if view.worker is None or not view.several_nodes:
        return
    for container in view.worker.pod.all_containers:
        probes = [name for name in ("readinessProbe", "startupProbe") if name in container.document]
        if probes and (not container.is_init or container.is_sidecar):
            why = (
                f"is false, and container {container.name} has a {probes[0]}: DNS has no address of a node before the"
                " probe succeeds, and the nodes need the first one's address to begin"
            )
            hint = f"leave it out (true is the default), or remove the {probes[0]}"
            yield Problem("spec.template.spec.network.publishNotReadyAddresses", why, hint)
            return


def unknown_names(view: View) -> Iterator[Problem]:
    """Yield nodes that do not ask the DNS of the cluster, which alone knows the names by which they find each other."""
    if not view.has_policy("torch", "jax", "mpi", "flux"):
        return
    for step, _ in _pairs(view):
        policy = step.pod.spec.get("dnsPolicy") or "ClusterFirst"
        on_host = step.pod.spec.get("hostNetwork") is True
        if policy == "Default" or (on_host and policy == "ClusterFirst"):
            reason = f"dnsPolicy {policy}"
            if on_host:
                reason = f"hostNetwork and {reason}"
            why = (
                f"with {reason} the Pods of {step.name} ask the DNS of their machine, which does not know the names of Pods"
                " by which the nodes find each other"
            )
            yield Problem(
                f"{step.pod.at}.dnsPolicy", why, "write ClusterFirstWithHostNet" if on_host else "leave it out"
            )
