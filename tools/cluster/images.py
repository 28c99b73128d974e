"""Container images without a builder and a registry on the internet: this machine's own Python under the names of the catalogue.

An image is a skeleton of folders; the programs come from this machine, mounted read-only into every container (`mounts`). So
`python3` in a pod is the interpreter of the tests, with PyTorch's layer, the one that Local uses too, on top. This file is also a
program, the registry that nodes pull from: any other name is not found there. Called by nodes.py.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import urllib.parse
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CLONE = Path(__file__).resolve().parents[2]
LAYER = ("torch>=2.6,<3", "numpy")
"""Packages that are installed in the image, as examples ask for them: pods reach no index."""
MACHINE = "localhost/machine:1"
"""This machine's Python, for pods of tests."""
PAUSE = "localhost/pause:1"
NAMES: Mapping[str, Sequence[str]] = {
    "localhost/machine": (),
    "docker.io/library/python": (),
    "docker.io/pytorch/pytorch": (),
    "ghcr.io/kubeflow/trainer/dataset-initializer": ("dataset",),
    "ghcr.io/kubeflow/trainer/model-initializer": ("model",),
    "ghcr.io/kubeflow/trainer/deepspeed-runtime": (),
    "ghcr.io/kubeflow/trainer/mlx-runtime": (),
}
"""Image, in any version -> what it fetches by itself; empty: it needs a command."""
SSH = ("openssh-server", "libwrap0")
"""Debian packages with what MPI's images have and no machine should have to run, `sshd`; mpirun is that of this machine."""
USER = "mpiuser"
"""The user of these images, with number 1000 and the settings of ssh that Trainer's have."""
LINKS = ("bin", "sbin", "lib", "lib64")
ALTERNATIVES = "etc/alternatives"
"""Where Debian's names of some programs lead, such as /usr/bin/mpirun."""
MANIFEST, CONFIG = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json"


def installed() -> bool:
    """Whether `layer` will be quick, as far as can be told."""
    environments = Path.home() / ".cache" / "pulumi-trainer" / "environments"
    return any(environments.glob("*/lib/*/site-packages/torch"))


def layer() -> dict[str, str]:
    """The variables that put PyTorch in front, which is installed where it is not yet; minutes for who is the first."""
    program = CLONE / "provider" / "pod" / "layer.py"
    done = subprocess.run([sys.executable, str(program), *LAYER], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def mounts(variables: Mapping[str, str], ssh: Path) -> list[dict[str, Any]]:
    """What every container sees of this machine, in the words of the OCI runtime specification.

    variables: of `layer`. ssh: the unpacked packages `SSH`, whose programs are seen in /usr/sbin, where runtimes start them.
    """
    home = Path(variables["PATH"].partition(os.pathsep)[0]).parent
    found = dict.fromkeys(["/usr", sys.base_prefix, str(CLONE), str(home), str(ssh)])
    found |= dict.fromkeys(
        f"/{name}" for name in (*LINKS, ALTERNATIVES) if Path("/", name).is_dir() and not Path("/", name).is_symlink()
    )
    kept = [path for path in found if not any(other != path and path.startswith(f"{other}/") for other in found)]
    made: list[dict[str, Any]] = [
        {"destination": p, "type": "bind", "source": p, "options": ["rbind", "ro", "nosuid", "nodev"]} for p in kept
    ]
    programs = f"lowerdir={ssh}/usr/sbin:/usr/sbin"
    return [*made, {"destination": "/usr/sbin", "type": "overlay", "source": "overlay", "options": ["ro", programs]}]


def write(folder: Path, variables: Mapping[str, str], pause: Path, ssh: Path) -> None:
    """The content of the registry: index.json (image -> digest of its manifest) and blobs. variables: of `layer`.
    pause: the program of that name. ssh: as for `mounts`."""
    folder.mkdir(parents=True)
    machine = _put(folder, _archive(_skeleton()))
    path = os.pathsep.join(
        [variables["PATH"].partition(os.pathsep)[0], str(Path(sys.executable).parent), "/usr/bin", "/bin"]
    )
    index = {}
    for name, kinds in NAMES.items():
        config: dict[str, Any] = {
            "Env": [*(f"{key}={value}" for key, value in {**variables, "PATH": path}.items())],
            "WorkingDir": "/",
        }
        if name.endswith(("deepspeed-runtime", "mlx-runtime")):
            libraries = ":".join(str(path) for part in ("lib", "usr/lib") for path in ssh.glob(f"{part}/*-linux-*"))
            config["Env"] += [f"HOME=/home/{USER}", f"LD_LIBRARY_PATH={libraries}"]
            config["WorkingDir"] = f"/home/{USER}"
        for kind in kinds:
            config["Entrypoint"] = [sys.executable, "-m", "pulumi_trainer.provider.pod.initializers", kind]
            config["Env"].append(f"OUTPUT_DIR=/workspace/{kind}")
        index[name] = _image(folder, machine, config)
    alone = tarfile.TarInfo("pause")
    alone.mode, alone.size = 0o755, pause.stat().st_size
    index["localhost/pause"] = _image(
        folder, _put(folder, _archive([(alone, pause.read_bytes())])), {"Entrypoint": ["/pause"]}
    )
    (folder / "index.json").write_text(json.dumps(index))


def _skeleton() -> list[tuple[tarfile.TarInfo, bytes]]:
    entries = []
    for name in (
        "etc",
        "home",
        "opt",
        "proc",
        "root",
        "run",
        "srv",
        "sys",
        "dev",
        "tmp",
        "usr",
        "var",
        "var/tmp",
        "workspace",
        "etc/ssh",
        f"home/{USER}",
    ):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
        if name.endswith(USER):
            folder.uid = folder.gid = 1000
        entries.append((folder, b""))
    for name in LINKS:
        if Path("/", name).is_symlink():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(Path("/", name).readlink())
            entries.append((link, b""))
    files = {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        f"{USER}:x:1000:1000::/home/{USER}:/bin/sh\n",
        "etc/group": f"root:x:0:\nnogroup:x:65534:\n{USER}:x:1000:\n",
        "etc/ssh/ssh_config": "Host *\n Port 2222\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n",
        f"home/{USER}/.sshd_config": f"PidFile /home/{USER}/sshd.pid\nHostKey /home/{USER}/.ssh/id_rsa\n"
        "StrictModes no\nPort 2222\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    for name, text in files.items():
        file = tarfile.TarInfo(name)
        file.size = len(text)
        entries.append((file, text.encode()))
    return entries


def _archive(entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _put(folder: Path, content: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (folder / digest).write_bytes(content)
    return digest


def _image(folder: Path, content: str, config: Mapping[str, Any]) -> str:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    described = {
        "architecture": architecture, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": [content]},
    }  # fmt: skip
    inner = _put(folder, json.dumps(described).encode())
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": inner, "size": (folder / inner).stat().st_size},
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": content,
                "size": (folder / content).stat().st_size,
            }
        ],
    }  # fmt: skip
    return _put(folder, json.dumps(manifest).encode())


class Registry(BaseHTTPRequestHandler):
    """The part of the distribution specification that a pull needs: manifests by tag and digest, blobs."""

    folder: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers a pull."""
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if parts == ["v2"]:
            return self._answer(200, b"{}", "application/json")
        host = urllib.parse.parse_qs(url.query).get("ns", ["localhost"])[0]
        name, wanted, reference = "/".join([host, *parts[1:-2]]), *parts[-2:]
        index = json.loads((self.folder / "index.json").read_text())
        if wanted == "manifests" and not reference.startswith("sha256:"):
            reference = index.get(name, "")
        file = self.folder / reference
        if not reference.startswith("sha256:") or "/" in reference or not file.exists():
            error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": f"there is no image {name} here"}]}
            return self._answer(404, json.dumps(error).encode(), "application/json")
        kind = MANIFEST if wanted == "manifests" else "application/octet-stream"
        return self._answer(200, file.read_bytes(), kind, {"Docker-Content-Digest": reference})

    do_HEAD = do_GET  # noqa: N815 (the library's name)

    def _answer(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main(address: str, port: str, folder: str) -> None:
    """Serves until it is ended."""
    Registry.folder = Path(folder)
    ThreadingHTTPServer((address, int(port)), Registry).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
