"""Adds what a Pod spec lacks of the profile "restricted" of the Pod Security Standards, and finds what violates it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/, and no service account token. Violations have the words of
the API server's PodSecurity admission; hosts of probes, annotations and Windows are left to the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    items,
    listed,
    mappings,
    number,
    section,
    text,
    texts,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Container, Pod

USER = 1000
"""User and group of containers whose image may run as root, and group of the files in volumes."""
TEMPORARY = "/tmp"  # noqa: S108 (a path in containers)
"""Writable folder, and HOME, of containers that run as another user than that of their image."""
TEMPORARY_VOLUME = "writable-tmp"
USER_ENV = ({"name": "HOME", "value": TEMPORARY}, {"name": "USER", "value": "nonroot"})
"""`USER` has no entry in the image's /etc/passwd, where programs look up a home folder and, without this variable, a name."""
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
"""Where the API server mounts the token, unless the container has another mount at this path."""
BIND_SERVICE = "NET_BIND_SERVICE"
"""The only capability that the profile allows to add."""

LABEL = "pod-security.kubernetes.io/"
"""Prefix of a namespace's labels with levels and their versions."""
_SE_LINUX_TYPES = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
BASELINE_CAPABILITIES = frozenset([
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", BIND_SERVICE, "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
])  # fmt: skip
"""Capabilities that "baseline" allows to add."""
_SYSCTLS = frozenset([
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
])  # fmt: skip
_VOLUMES = frozenset([
    "name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
    "secret", "image",
])  # fmt: skip


def harden(spec: Document) -> Document:
    """Return a Pod spec with everything of the profile that it lacks. Values of the spec stay, also those that violate it."""
    images_users = {each.at for each in Pod(spec).all_containers if runs_as_image_user(spec, each)}
    everywhere = len(images_users) == len(Pod(spec).all_containers)
    hardened = {"automountServiceAccountToken": False, **spec}
    context = spec.get("securityContext")
    if context is None or isinstance(context, dict):
        hardened["securityContext"] = _pod_context(context or {}, everywhere)
    for part in ("initContainers", "containers"):
        if isinstance(spec.get(part), list):
            containers = []
            for place, container in enumerate(spec[part]):
                image_user = f"{part}[{place}]" in images_users
                containers.append(_container(container, image_user, everywhere))
            hardened[part] = containers
    volumes = spec.get("volumes")
    if images_users and (volumes is None or isinstance(volumes, list)) and _mounts_temporary(hardened):
        hardened["volumes"] = [*listed(volumes), {"name": TEMPORARY_VOLUME, "emptyDir": {}}]
    return hardened


def runs_as_image_user(spec: Document, container: Container) -> bool:
    """Return whether a container runs as the user of its image, and nothing says that this is not root."""
    for field, by_image in (("runAsUser", None), ("runAsNonRoot", False)):
        value = _effective(spec, container, field)
        if value not in (None, by_image):
            return False
    return isinstance(container.document.get("securityContext", {}), dict)


def violations(spec: Document) -> Iterator[str]:
    """Yield what violates the profile, or mounts a service account token, in a Pod spec. Unknown values violate nothing."""
    yield from standard_violations(spec, "restricted")
    token = spec.get("automountServiceAccountToken")
    if token is not False and not isinstance(token, Unknown) and not _hides_token(Pod(spec)):
        yield "service account token (pod must set automountServiceAccountToken=false)"


def standard_violations(spec: Document, level: str) -> Iterator[str]:
    """Yield what violates a level of the Pod Security Standards in a Pod spec. Unknown values violate nothing.

    Order and words: https://github.com/kubernetes/kubernetes/tree/v1.36.3/staging/src/k8s.io/pod-security-admission/policy. The
    rules are those of the level's newest version.

    Args:
        level: "baseline" or "restricted"; any other level admits everything.
    """
    pod = Pod(spec)
    for reason, find in _LEVELS.get(level, ()):
        if reason in _RELAXED and spec.get("hostUsers") is False:
            continue
        detail = find(pod)
        if detail:
            yield f"{reason} ({detail})"


_WORDS = {"enforce": "violates", "warn": "would violate"}


def words_of_namespace(spec: Document, namespace: Document | None, mode: str = "enforce") -> str:
    """Return the words with which Pod Security of a namespace refuses a Pod, or warns of it; empty if it does not.

    Args:
        mode: The label with the level: enforce or warn.
    """
    labels = section(namespace, "metadata", "labels")
    level = text(labels.get(f"{LABEL}{mode}"))
    found = ", ".join(standard_violations(spec, level))
    if not found:
        return ""
    version = text(labels.get(f"{LABEL}{mode}-version")) or "latest"
    return f'{_WORDS[mode]} PodSecurity "{level}:{version}": {found}'


def _quoted(names: Iterable[Any]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(noun: str, items: Collection[Any]) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def _containers(names: list[Any]) -> str:
    return f"{_plural('container', names)} {_quoted(names)}"


def _contexts(pod: Pod) -> list[tuple[Any, Document]]:
    """Return the containers' names with their security contexts, as far as these are known."""
    found = []
    for each in pod.all_containers:
        context = each.document.get("securityContext") or {}
        if isinstance(context, dict):
            found.append((each.name, context))
    return found


def _setters(pod: Pod, is_bad: Callable[[Document], bool]) -> str:
    """Return which of the Pod and its containers have a security context of a kind; empty for none."""
    found = []
    if is_bad(section(pod.spec, "securityContext")):
        found.append("pod")
    names = [name for name, context in _contexts(pod) if is_bad(context)]
    if names:
        found.append(_containers(names))
    return " and ".join(found)


def _bad_types(pod: Pod, profile: str, must: str) -> str:
    """Return what sets the type of a profile, such as seccompProfile, to one that no level allows."""
    types: set[str] = set()

    def is_bad(context: Document) -> bool:
        if profile not in context or isinstance(context[profile], Unknown):
            return False
        found = section(context, profile).get("type")
        if isinstance(found, Unknown) or found in ("RuntimeDefault", "Localhost"):
            return False
        types.add(str(found or ""))
        return True

    setters = _setters(pod, is_bad)
    return f"{setters} must not set {must} to {_quoted(sorted(types))}" if setters else ""


def _app_armor(pod: Pod) -> str:
    return _bad_types(pod, "appArmorProfile", "AppArmor profile type")


def _seccomp(pod: Pod) -> str:
    return _bad_types(pod, "seccompProfile", "securityContext.seccompProfile.type")


def _required_seccomp(pod: Pod) -> str:
    lacking = _without(pod, "seccompProfile")
    must = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return _seccomp(pod) or (f"pod or {_containers(lacking)} {must}" if lacking else "")


def _without(pod: Pod, field: str) -> list[Any]:
    """Return the containers for which neither they nor their Pod have a field of the security context."""
    lacking = []
    for each in pod.all_containers:
        if _effective(pod.spec, each, field) is None:
            lacking.append(each.name)
    return lacking


def _added_capabilities(pod: Pod, allowed: Collection[str]) -> str:
    names, added = [], set[str]()
    for name, context in _contexts(pod):
        forbidden = {*texts(section(context, "capabilities").get("add"))} - {*allowed}
        if forbidden:
            names.append(name)
            added |= forbidden
    if not names:
        return ""
    return f"{_containers(names)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add"


def _baseline_capabilities(pod: Pod) -> str:
    return _added_capabilities(pod, BASELINE_CAPABILITIES)


def _restricted_capabilities(pod: Pod) -> str:
    keeping = []
    for name, context in _contexts(pod):
        capabilities = context.get("capabilities") or {}
        if isinstance(capabilities, dict) and "ALL" not in listed(capabilities.get("drop")):
            keeping.append(name)
    found = []
    if keeping:
        found.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    added = _added_capabilities(pod, (BIND_SERVICE,))
    if added:
        found.append(added)
    return "; ".join(found)


def _host_namespaces(pod: Pod) -> str:
    return ", ".join(f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name) is True)


def _host_paths(pod: Pod) -> str:
    names = [volume.get("name") for volume in pod.volumes if volume.get("hostPath") is not None]
    return f"{_plural('volume', names)} {_quoted(names)}" if names else ""


def _restricted_volumes(pod: Pod) -> str:
    names, types = [], set[str]()
    for volume in pod.volumes:
        found = volume.keys() - _VOLUMES
        if found:
            names.append(volume.get("name"))
            types |= found
    if not names:
        return ""
    use = "uses" if len(names) == 1 else "use"
    kind = _plural("restricted volume type", types)
    return f"{_plural('volume', names)} {_quoted(names)} {use} {kind} {_quoted(sorted(types))}"


def _host_ports(pod: Pod) -> str:
    names, ports = [], set[str]()
    for each in pod.all_containers:
        found = {str(port["hostPort"]) for port in each.ports if number(port.get("hostPort"))}
        if found:
            names.append(each.name)
            ports |= found
    if not names:
        return ""
    use = "uses" if len(names) == 1 else "use"
    return f"{_containers(names)} {use} {_plural('hostPort', ports)} {', '.join(sorted(ports))}"


def _which(pod: Pod, is_bad: Callable[[Document], bool], must: str) -> str:
    """Return which containers have a security context of a kind, and what they must do; empty for none."""
    names = [name for name, context in _contexts(pod) if is_bad(context)]
    return f"{_containers(names)} {must}" if names else ""


def _privileged(pod: Pod) -> str:
    must = "must not set securityContext.privileged=true"
    return _which(pod, lambda context: context.get("privileged") is True, must)


def _proc_mount(pod: Pod) -> str:
    return _forbidden_proc_mount(pod) if pod.spec.get("hostUsers") is not False else ""


def _forbidden_proc_mount(pod: Pod) -> str:
    must = 'must not set securityContext.procMount to "Unmasked"'
    return _which(pod, lambda context: context.get("procMount") == "Unmasked", must)


def _se_linux(pod: Pod) -> str:
    types, fields = set[str](), set[str]()

    def is_bad(context: Document) -> bool:
        options = section(context, "seLinuxOptions")
        bad = {text(options.get("type"))} - {"", *_SE_LINUX_TYPES}
        given = {name for name in ("user", "role") if text(options.get(name))}
        types.update(bad)
        fields.update(given)
        return bool(bad or given)

    setters = _setters(pod, is_bad)
    data = [f"{_plural('type', types)} {_quoted(sorted(types))}"] if types else []
    data += [f"{name} may not be set" for name in ("user", "role") if name in fields]
    return f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}" if setters else ""


def _sysctls(pod: Pod) -> str:
    names = [text(each.get("name")) for each in items(section(pod.spec, "securityContext"), "sysctls")]
    return ", ".join(name for name in names if name and name not in _SYSCTLS)


def _escalation(pod: Pod) -> str:
    def may_escalate(context: Document) -> bool:
        value = context.get("allowPrivilegeEscalation")
        return value is not False and not isinstance(value, Unknown)

    return _which(pod, may_escalate, "must set securityContext.allowPrivilegeEscalation=false")


def _root_allowed(pod: Pod) -> str:
    setters = _setters(pod, lambda context: context.get("runAsNonRoot") is False)
    if setters:
        return f"{setters} must not set securityContext.runAsNonRoot=false"
    lacking = _without(pod, "runAsNonRoot")
    return f"pod or {_containers(lacking)} must set securityContext.runAsNonRoot=true" if lacking else ""


def _root(pod: Pod) -> str:
    setters = _setters(pod, lambda context: _is_root(context.get("runAsUser")))
    return f"{setters} must not set runAsUser=0" if setters else ""


_Checks = tuple[tuple[str, Callable[[Pod], str]], ...]
_BASELINE: _Checks = (
    ("forbidden AppArmor profile", _app_armor),
    ("non-default capabilities", _baseline_capabilities),
    ("host namespaces", _host_namespaces),
    ("hostPath volumes", _host_paths),
    ("hostPort", _host_ports),
    ("privileged", _privileged),
    ("procMount", _proc_mount),
    ("seLinuxOptions", _se_linux),
    ("seccompProfile", _seccomp),
    ("forbidden sysctls", _sysctls),
)
_OF_NODE = (_host_namespaces, _host_paths, _host_ports, _privileged, _proc_mount)
WITHOUT_NODE = BASELINE_CAPABILITIES | {"IPC_LOCK"}
"""Capabilities that give a container nothing of its node; RDMA needs IPC_LOCK."""


def host_access(pod: Pod) -> list[str]:
    """Return what of its node a Pod uses beyond what "baseline" allows, in the words of Pod Security."""
    found = [f"{reason} ({find(pod)})" for reason, find in _BASELINE if find in _OF_NODE and find(pod)]
    added = _added_capabilities(pod, WITHOUT_NODE)
    return [*found, f"non-default capabilities ({added})"] if added else found


_REPLACED = (_baseline_capabilities, _host_paths, _proc_mount, _seccomp)
"""Checks that "restricted" replaces by stricter ones."""
_RESTRICTED: _Checks = (
    *((reason, find) for reason, find in _BASELINE if find not in _REPLACED),
    ("allowPrivilegeEscalation != false", _escalation),
    ("unrestricted capabilities", _restricted_capabilities),
    ("procMount", _forbidden_proc_mount),
    ("restricted volume types", _restricted_volumes),
    ("runAsNonRoot != true", _root_allowed),
    ("runAsUser=0", _root),
    ("seccompProfile", _required_seccomp),
)
_LEVELS = {"baseline": _BASELINE, "restricted": _RESTRICTED}
_RELAXED = ("runAsNonRoot != true", "runAsUser=0")
"""What newer versions allow Pods in a user namespace (`hostUsers: false`)."""


def _pod_context(context: Document, everywhere: bool) -> Document:
    """Return the security context of a Pod. everywhere: Whether all of its containers may run as root."""
    hardened = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **context}
    if everywhere:
        hardened = {"runAsUser": USER, "runAsGroup": USER, **hardened}
    if "fsGroup" not in context:
        hardened = {**hardened, "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"}
    return hardened


def _container(container: Any, image_user: bool, everywhere: bool) -> Any:
    context = section(container).get("securityContext", {})
    if not isinstance(container, dict) or not isinstance(context, dict):
        return container
    hardened = {"allowPrivilegeEscalation": False, **context}
    capabilities = context.get("capabilities", {})
    if isinstance(capabilities, dict) and isinstance(capabilities.get("drop", []), list):
        hardened["capabilities"] = {**capabilities, "drop": ["ALL"]}
    if image_user and not everywhere:
        hardened = {"runAsUser": USER, "runAsGroup": USER, **hardened}
    container = {**container, "securityContext": hardened}
    if not image_user:
        return container
    return _with_home(container)


def _with_home(container: Document) -> Document:
    env, mounts = container.get("env", []), container.get("volumeMounts", [])
    if isinstance(env, list):
        container = {**container, "env": [*missing_user_env(mappings(env)), *env]}
    if isinstance(mounts, list) and TEMPORARY not in {str(m.get("mountPath")).rstrip("/") for m in mappings(mounts)}:
        mount = {"name": TEMPORARY_VOLUME, "mountPath": TEMPORARY}
        container = {**container, "volumeMounts": [*mounts, mount]}
    return container


def missing_user_env(env: list[Document]) -> list[Document]:
    """Return the variables of `USER_ENV` that an `env` does not have."""
    names = {each.get("name") for each in env}
    return [{**each} for each in USER_ENV if each["name"] not in names]


def _mounts_temporary(spec: Document) -> bool:
    return any(mount.get("name") == TEMPORARY_VOLUME for mount in Pod(spec).mounts)


def _hides_token(pod: Pod) -> bool:
    """Return whether all containers have another mount where the API server would mount the token."""
    return all(TOKEN_PATH in {mount.get("mountPath") for mount in each.mounts} for each in pod.all_containers)


def _effective(spec: Document, container: Container, field: str) -> Any:
    """Return a field of the container's security context, else of the Pod's; an Unknown if that is not known."""
    for context in (container.document.get("securityContext"), spec.get("securityContext")):
        if isinstance(context, Unknown):
            return context
        value = section(context).get(field)
        if value is not None:
            return value
    return None


def _is_root(user: Any) -> bool:
    return isinstance(user, int) and not isinstance(user, bool) and user == 0
