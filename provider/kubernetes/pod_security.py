"""Adds what a Pod spec lacks of the profile "restricted" of the Pod Security Standards, and finds what violates it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/, and no service account token. Violations have the words of
the API server's PodSecurity admission; rare ones (SELinux, AppArmor, sysctls, procMount, Windows) are left to the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, section
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

_VOLUMES = frozenset(
    {
        "name",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "image",
    }
)


def harden(spec: Document) -> Document:
    """Return a Pod spec with everything of the profile that it lacks. Values of the spec stay, also those that violate it.

    Args:
        spec: The spec; unknown values are left alone.
    """
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
    """Return whether a container runs as the user of its image, and nothing says that this is not root.

    Args:
        spec: Spec of the Pod, whose securityContext counts where the container's sets nothing.
    """
    for field, by_image in (("runAsUser", None), ("runAsNonRoot", False)):
        value = _effective(spec, container, field)
        if value not in (None, by_image):
            return False
    return isinstance(container.document.get("securityContext", {}), dict)


def violations(spec: Document) -> Iterator[str]:
    """Yield what violates the profile in a Pod spec. Unknown values violate nothing."""
    pod, context = Pod(spec), section(spec, "securityContext")
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name) is True:
            yield f"host namespaces ({name}=true)"
    for volume in pod.volumes:
        for kind in sorted(volume.keys() - _VOLUMES):
            yield f'restricted volume types (volume "{volume.get("name")}" uses restricted volume type "{kind}")'
    if _is_root(context.get("runAsUser")):
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    if context.get("runAsNonRoot") is False:
        yield "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)"
    for container in pod.all_containers:
        where = f'container "{container.name}"'
        for rule, must in _container_violations(spec, container):
            yield f"{rule} ({where} {must})"
    token = spec.get("automountServiceAccountToken")
    if token is not False and not isinstance(token, Unknown) and not _hides_token(pod):
        yield "service account token (pod must set automountServiceAccountToken=false)"


def _container_violations(spec: Document, container: Container) -> Iterator[tuple[str, str]]:
    context = container.document.get("securityContext", {})
    if not isinstance(context, dict):
        return
    capabilities = context.get("capabilities", {})
    if context.get("privileged") is True:
        yield "privileged", "must not set securityContext.privileged=true"
    if not _is_or_unknown(context.get("allowPrivilegeEscalation"), False):
        yield "allowPrivilegeEscalation != false", "must set securityContext.allowPrivilegeEscalation=false"
    if isinstance(capabilities, dict):
        added = [name for name in listed(capabilities.get("add")) if name != BIND_SERVICE]
        if added:
            names = ", ".join(f'"{name}"' for name in added)
            yield "unrestricted capabilities", f"must not include {names} in securityContext.capabilities.add"
        if "ALL" not in listed(capabilities.get("drop")):
            yield "unrestricted capabilities", 'must set securityContext.capabilities.drop=["ALL"]'
    if _is_root(context.get("runAsUser")):
        yield "runAsUser=0", "must not set runAsUser=0"
    if not _is_or_unknown(_effective(spec, container, "runAsNonRoot"), True):
        yield "runAsNonRoot != true", "must set securityContext.runAsNonRoot=true"
    kind = _effective(spec, container, "seccompProfile")
    if isinstance(kind, dict):
        kind = kind.get("type")
    if not isinstance(kind, Unknown) and kind not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile", 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    for port in container.ports:
        number = port.get("hostPort")
        if number:
            yield "hostPort", f"uses hostPort {number}"


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


def _is_or_unknown(value: Any, wanted: bool) -> bool:
    return value is wanted or isinstance(value, Unknown)


def _is_root(user: Any) -> bool:
    return isinstance(user, int) and not isinstance(user, bool) and user == 0
