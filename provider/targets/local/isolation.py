"""Isolates the processes of a container with bubblewrap: own mounts, own process ids, no home folder.

A container sees the system's programs and libraries, the interpreters with their packages, its working directory and its volumes.
It sees neither other files of the user nor processes of other containers and their environment. The network is that of the
machine.
What a job writes to is mounted by a file descriptor that is opened at each start (`open_contained`): a job may have put a link in
the place of a folder, which bubblewrap would follow to the user's own files.
bubblewrap: https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_IROTH
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, without
from pulumi_trainer.provider.machine.uv_program import find_uv
from pulumi_trainer.provider.targets.local.environment import base_environment
from pulumi_trainer.provider.targets.local.paths import open_contained

BWRAP = "bwrap"
WRITABLE, READ_ONLY = "--bind-fd", "--ro-bind-fd"
"""Options that mount a `Source`."""
_SYSTEM: tuple[str, ...] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/sys",
    "/var/lib/ca-certificates",
)
_READ_ONLY: tuple[str, ...] = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_MASKED = (
    "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
    "/sys/firmware",
)  # fmt: skip
"""What other container runtimes make read-only or hide, since root may write to it without any capability."""
_DEVICES = ("nvidia*", "kfd", "dri", "infiniband")
"""Devices of accelerators and their network, as patterns below /dev."""
_FILES_OF_VARIABLES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "PIP_CONFIG_FILE", "UV_CONFIG_FILE",
    "CUDA_HOME", "CUDA_PATH", "PIP_FIND_LINKS", "UV_FIND_LINKS",
)  # fmt: skip
"""Variables of the user whose files a container sees, because it has these variables."""
_PRIVATE = ("XDG_CACHE_HOME", "UV_CACHE_DIR")
"""Variables of the user that name folders of the home folder."""
_CONTENT = frozenset({"configMap", "secret", "downwardAPI", "projected"})
_ASK = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *filter(None, sys.path)]))"
_SIGNALS = "TERM"
"""The signal that ends a container gracefully: bubblewrap must not end by it before the container has."""


@dataclass(frozen=True)
class Source:
    """A file or folder in which containers may put links. The attributes are the arguments of `open_contained`."""

    path: str
    volume: str
    root: str

    @classmethod
    def of(cls, folder: Path, root: Path) -> Source:
        return cls(str(folder), str(folder), str(root))


Options = tuple["str | Source", ...]
"""Options of bubblewrap; the argument of `--bind-fd` and `--ro-bind-fd` is a `Source`, of which `wrapped` opens a descriptor."""


@dataclass(frozen=True)
class Isolation:
    """What all containers of a job see.

    Attributes:
        readable: Files and folders of the machine that are mounted read-only.
        hidden: Folders that are empty in a container, but for what is mounted within them: the user's home folder, the project,
            the folder of all jobs.
    """

    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    environments: Path

    def options(
        self,
        container: Mapping[str, Any],
        volumes: Sequence[Mapping[str, Any]],
        mounts: Mapping[str, Source],
        own: Mapping[Source, str],
    ) -> Options:
        """Return the options of bubblewrap for one container, without its environment. own: Folders of the job that are mounted
        in addition to the volumes -> the option."""
        binds: dict[str, tuple[str, str | Source]] = {}
        for path in (*_SYSTEM, *self.readable):
            binds[path] = "--ro-bind-try", path
        for path in self.hidden:
            binds[path] = "--tmpfs", path
        for source, option in own.items():
            binds[source.path] = option, source
        fixed = {volume["name"] for volume in volumes if _CONTENT & volume.keys()}
        for mount in mappings(container.get("volumeMounts")):
            writable = not mount.get("readOnly") and mount["name"] not in fixed
            option = READ_ONLY
            if writable:
                option = WRITABLE
            source = mounts[mount["mountPath"]]
            binds[source.path] = option, source
        return (*_options(), *_in_order(binds), *_masks())

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a container without variables that name folders of the home folder."""
        return without(env, *_PRIVATE)


def _options() -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--cap-drop", "ALL")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp")  # noqa: S108
    for pattern in _DEVICES:
        for device in sorted(Path("/dev").glob(pattern)):
            yield from ("--dev-bind", str(device), str(device))
    for path in _READ_ONLY:
        yield from ("--ro-bind-try", path, path)


def _masks() -> Iterator[str]:
    """Yield the options that hide what only root may read: in a container as well, the user may be root."""
    private: Iterable[str] = ()
    if os.geteuid() == 0:
        private = _private_paths(Path("/etc"))
    for path in map(Path, (*_MASKED, *private)):
        if path.is_dir():
            yield from ("--tmpfs", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))


def _private_paths(top: Path) -> Iterator[str]:
    """Yield the files and folders below a folder that other users may not read."""
    for place, folders, files in os.walk(top):
        for name in (*files, *folders):
            path = Path(place, name)
            if not path.is_symlink() and not path.lstat().st_mode & S_IROTH:
                yield str(path)
        folders[:] = [name for name in folders if Path(place, name).lstat().st_mode & S_IROTH]


def _in_order(binds: Mapping[str, tuple[str, str | Source]]) -> Iterator[str | Source]:
    """Yield the options of mounts, a folder before those within it. binds: Path -> option and source."""
    for path in sorted(binds, key=lambda path: len(Path(path).parts)):
        option, source = binds[path]
        yield option
        if option != "--tmpfs":
            yield source
        yield path


def find_isolation(
    pythons: Iterable[str], user_environment: Mapping[str, str], root: Path, environments: Path
) -> Isolation:
    """Return what the containers of a job see."""
    home = user_environment.get("HOME") or str(Path.home())
    readable = [user_environment.get(name, "") for name in _FILES_OF_VARIABLES]
    readable += [find_uv(), os.path.realpath("/etc/resolv.conf")]
    readable += [str(Path(each).resolve().parent) for each in _own_modules()]
    for python in dict.fromkeys(pythons):
        readable += _folders_of(python, user_environment)
    private = [Path(home), root]
    if root.name == ".pulumi-trainer":
        private.append(root.parent)
    hidden = [str(each.absolute()) for each in private if each.absolute() != Path("/")]
    mounted = [_mount_point(each, hidden) for each in readable if each]
    visible = dict.fromkeys(each for each in mounted if not _contains_any(each, hidden))
    return Isolation(tuple(visible), tuple(hidden), environments)


def _mount_point(path: str, hidden: Iterable[str]) -> str:
    """Return where a file or folder is mounted: what a link of the system's folders leads to.

    A container has such a link already, and bubblewrap mounts nothing on an absolute one, such as /usr/local/cuda.
    """
    if _is_below(path, _SYSTEM) and not _is_below(path, hidden):
        return os.path.realpath(path)
    return path


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(map(Path(path).is_relative_to, folders))


def _contains_any(folder: str, hidden: Iterable[str]) -> bool:
    return any(Path(each).is_relative_to(folder) for each in hidden)


def _own_modules() -> Iterator[str]:
    """Yield the files of this package, which an editable installation only links to."""
    for name in ("pulumi_trainer", "pulumi_trainer.provider.cli", "pulumi_trainer.provider"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield file


def _folders_of(python: str, user_environment: Mapping[str, str]) -> list[str]:
    env = base_environment(user_environment, python)
    try:
        done = subprocess.run(
            [python, "-c", _ASK], env=env, capture_output=True, text=True, check=True, timeout=60, cwd="/"
        )
        found = [*map(str, json.loads(done.stdout))]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        raise TargetFault(Problem(python, f"does not report where its packages are: {error}")) from None
    places = [*found, str(Path(found[0], "bin"))]
    return [*places, *map(os.path.realpath, places)]


@contextmanager
def wrapped(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, options: Sequence[str | Source]
) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the command that runs `argv` isolated, and the file descriptors that it inherits: the options, then each `Source`.

    Options and environment are in the file, so that no secret is among arguments, and no variable of the container acts outside.

    Raises:
        OSError: bubblewrap or coreutils' `env` is not installed, the file cannot be written, or a source leads out of its volume.
    """
    found = {name: shutil.which(name) for name in (BWRAP, "env")}
    for name, path in found.items():
        if path is None:
            raise FileNotFoundError(2, "not found on PATH", name)
    # In memory, since secrets are among the options.
    with os.fdopen(os.memfd_create("options", os.MFD_CLOEXEC), "w+b") as file, ExitStack() as sources:
        opened, words = [file.fileno()], []
        for word in options:
            if isinstance(word, Source):
                opened.append(open_contained(word.path, word.volume, word.root))
                sources.callback(os.close, opened[-1])
                words.append(str(opened[-1]))
            else:
                words.append(word)
        words += ["--chdir", str(cwd)]
        for name, value in env.items():
            words += ["--setenv", name, value]
        file.write("".join(f"{word}\0" for word in words).encode(errors="surrogateescape"))
        file.seek(0)
        env_program = str(found["env"])
        outside = [env_program, f"--ignore-signal={_SIGNALS}", str(found[BWRAP]), "--args", str(file.fileno()), "--"]
        yield [*outside, env_program, f"--default-signal={_SIGNALS}", "--", *argv], opened


def problems() -> list[Problem]:
    """Return why containers cannot be isolated on this machine."""
    where = "target.isolation"
    if sys.platform != "linux":
        return [Problem(where, "bubblewrap needs Linux", "leave isolation out, or use the Kubernetes target")]
    if shutil.which(BWRAP) is None:
        hint = "install it (Debian, Ubuntu, Fedora: package bubblewrap), or leave isolation out"
        return [Problem(where, f"{BWRAP} is not on PATH", hint)]
    options = Isolation((), (), Path()).options({}, [], {}, {Source("/usr", "/usr", "/usr"): READ_ONLY})
    try:
        with wrapped(["true"], {"PATH": os.defpath}, Path("/"), options) as (argv, files):
            done = subprocess.run(argv, pass_fds=files, env={}, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Problem(where, f"{BWRAP} cannot be started: {error}", "leave isolation out")]
    if not done.returncode:
        return []
    hint = "unprivileged user namespaces may be switched off on this machine (sysctl kernel.unprivileged_userns_clone,"
    hint += f" kernel.apparmor_restrict_unprivileged_userns); bubblewrap needs the option {WRITABLE}, which 0.10 and the security"
    hint += " updates of Debian and Ubuntu have; env must be of coreutils 8.31 or newer"
    reason = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
    return [Problem(where, f"{BWRAP} does not work here: {reason}", hint)]
