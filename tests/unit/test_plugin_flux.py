"""Flux: volumes, installer and the wrapped command; and its two scripts, run with a `flux` that writes down its calls."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from plugin_support import container, job, main, pod, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import render

CONFIG = "ConfigMap/digits-flux-entrypoint"
GPU = "nvidia.com/gpu"


def flux(*jobs: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return runtime({"flux": policy}, *jobs)


def scripts(trainer: dict[str, Any], *jobs: dict[str, Any], **policy: Any) -> tuple[str, str]:
    """The init container's, and the node's."""
    data = rendered(flux(*jobs, **policy), train_job({"numNodes": 1, **trainer}))[CONFIG]["data"]
    assert sorted(data) == ["entrypoint.sh", "init.sh"]
    return data["init.sh"], data["entrypoint.sh"]


class TestObjects:
    @pytest.mark.parametrize("trainer", [None, {}, {"numProcPerNode": 2}])
    def test_without_number_of_nodes_the_controller_would_fail_for_ever(self, trainer: Any) -> None:
        assert problems(flux(), train_job(trainer)) == []
        with pytest.raises(
            Invalid, match=r"spec\.trainer\.numNodes: is required with Flux.*. Hint: set it, also for one node \(1\)"
        ):
            rendered(flux(), train_job(trainer))

    def test_a_runtime_without_defaults(self) -> None:
        render(flux(), train_job({"numNodes": 1, "numProcPerNode": 1}))
        with pytest.raises(Invalid, match=r"spec\.mlPolicy\.flux\.numProcPerNode: is missing"):
            render(flux(), train_job({"numNodes": 1}))


class TestCommand:
    @pytest.mark.parametrize(
        ("own", "trainer", "wanted"),
        [
            ({}, {}, ""),
            ({"command": ["a", "b c"]}, {}, "a b c"),
            ({"command": ["a"], "args": ["lost"]}, {"args": ["x", "y "]}, "a x y"),
            ({"command": ["a"]}, {"command": ["b"]}, "b"),
            ({"command": ["a"]}, {"command": [], "args": ["x"]}, "x"),
            ({"args": ["kept"]}, {"command": [" b"], "args": []}, "b"),
        ],
    )
    def test_is_one_word(self, own: dict[str, Any], trainer: dict[str, Any], wanted: str) -> None:
        node = main(rendered(flux(job("node", None, container(**own))), train_job({"numNodes": 1, **trainer})))
        assert node["command"] == ["/bin/bash", "/etc/flux-config/entrypoint.sh", wanted]
        assert node.get("args") == own.get("args")


class TestSettings:
    def test_defaults_runtime_and_job(self) -> None:
        own = container(
            env=[{"name": "FLUX_QUEUE_POLICY", "value": "easy"}, {"name": "FLUX_NETWORK_DEVICE", "value": "a"}]
        )
        init, _ = scripts({"env": [{"name": "FLUX_NETWORK_DEVICE", "value": "b"}]}, job("node", None, own))
        assert 'queue-policy = "easy"' in init
        assert 'default_bind = "tcp://b:%p"' in init
        init, _ = scripts({})
        assert 'queue-policy = "fcfs"' in init
        assert 'default_bind = "tcp://eth0:%p"' in init
        assert 'default_connect = "tcp://%h.digits.ns.svc.cluster.local:%p"' in init

    @pytest.mark.parametrize(
        ("given", "wanted"), [({"value": "i:2"}, "i:2"), ({"valueFrom": {"fieldRef": {"fieldPath": "x"}}}, None)]
    )
    def test_image(self, given: dict[str, Any], wanted: str | None) -> None:
        """Of a value that comes from elsewhere nothing is left, as upstream."""
        tj = train_job({"numNodes": 1, "env": [{"name": "FLUX_VIEW_IMAGE", **given}]})
        assert pod(rendered(flux(), tj))["initContainers"][0].get("image") == wanted

    def test_a_value_from_elsewhere_in_the_runtime_does_not_count(self) -> None:
        own = container(env=[{"name": "FLUX_VIEW_IMAGE", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}])
        objects = rendered(flux(job("node", None, own)), train_job({"numNodes": 1}))
        assert pod(objects)["initContainers"][0]["image"].startswith("ghcr.io/")

    def test_quotes_do_no_harm(self) -> None:
        init, _ = scripts({"env": [{"name": "FLUX_QUEUE_POLICY", "value": "'; touch /x; \" $(id)\n"}]})
        text = init.partition("broker=")[2]
        broker = next(iter(shlex.shlex(text, posix=True, punctuation_chars=False)))
        assert broker.endswith('queue-policy = "\'; touch /x; \\" $(id)\\n"')

    @pytest.mark.parametrize(("nodes", "wanted"), [(1, "0"), (3, "0-2"), (0, "0--1")])
    def test_hosts(self, nodes: int, wanted: str) -> None:
        init, entrypoint = scripts({"numNodes": nodes})
        assert f"hosts='digits-node-0-[{wanted}]'\n" in init
        assert f'host = "digits-node-0-[{wanted}]"' in init
        assert "head_node=digits-node-0-0\n" in entrypoint

    @pytest.mark.parametrize(
        ("trainer", "resources", "flags"),
        [
            ({"numNodes": 2}, "--cores=0-3", "-N 2 -n 8"),
            ({"numNodes": 2, "numProcPerNode": 1}, "--cores=0", "-N 2 -n 2"),
            ({"resourcesPerNode": {"limits": {GPU: 1}}}, "--cores=0-3 --gpu=0", "-N 1 -n 4 -g 1"),
            ({"resourcesPerNode": {"limits": {GPU: 2}}}, "--cores=0-3 --gpu=0-1", "-N 1 -n 4 -g 2"),
            ({"resourcesPerNode": {"limits": {GPU: -2}}}, "--cores=0-3", "-N 1 -n 4"),
            ({"numNodes": 2**30}, "--cores=0-3", f"-N {2**30} -n 0"),
        ],
    )
    def test_resources(self, trainer: dict[str, Any], resources: str, flags: str) -> None:
        _, entrypoint = scripts(trainer, numProcPerNode=4)
        assert f"resources=({resources})\nflags=({flags})\n" in entrypoint

    def test_gpus_of_the_runtime(self) -> None:
        node = job("node", None, container(resources={"limits": {GPU: 2}}))
        assert "-g 2" in scripts({}, node)[1]
        assert "-g" not in scripts({"resourcesPerNode": {"limits": {"cpu": 1}}}, node)[1].partition("\n# ")[0]


class TestUnknown:
    def data(self, trainer: Any, *jobs: dict[str, Any], **policy: Any) -> tuple[Any, Any]:
        data = rendered(flux(*jobs, **policy), train_job(trainer))[CONFIG]["data"]
        return data["init.sh"], data["entrypoint.sh"]

    def test_number_of_nodes(self) -> None:
        unknown = Unknown("u")
        assert self.data({"numNodes": unknown}) == (unknown, unknown)

    def test_only_what_is_computed(self) -> None:
        unknown = Unknown("u")
        for trainer in ({"numProcPerNode": unknown}, {"resourcesPerNode": {"limits": {GPU: unknown}}}):
            init, entrypoint = self.data({"numNodes": 1, **trainer})
            assert isinstance(init, str)
            assert entrypoint is unknown
        for value in (
            {"name": "FLUX_QUEUE_POLICY", "value": unknown},
            {"name": "FLUX_NETWORK_DEVICE", "value": unknown},
        ):
            init, entrypoint = self.data({"numNodes": 1, "env": [value]})
            assert init is unknown
            assert isinstance(entrypoint, str)
        assert self.data({"numNodes": 1}, numProcPerNode=unknown)[1] is unknown

    def test_environment(self) -> None:
        unknown = Unknown("u")
        for rt, trainer in ((flux(), {"env": unknown}), (flux(job("node", None, container(env=unknown))), {})):
            objects = rendered(rt, train_job({"numNodes": 1, **trainer}))
            assert objects[CONFIG]["data"]["init.sh"] is unknown
            assert pod(objects)["initContainers"][0]["image"] is unknown
        assert isinstance(self.data({"numNodes": 1, "env": [unknown]})[0], str)

    def test_command(self) -> None:
        unknown = Unknown("u")
        for trainer in ({"command": unknown}, {"command": ["a", unknown]}, {"args": [unknown]}):
            assert main(rendered(flux(), train_job({"numNodes": 1, **trainer})))["command"][2] is unknown

    def test_the_whole_trainer(self) -> None:
        unknown = Unknown("u")
        assert self.data(unknown) == (unknown, unknown)

    def test_namespace(self) -> None:
        tj = train_job({"numNodes": 1})
        tj["metadata"]["namespace"] = Unknown("u")
        assert rendered(flux(), tj)[CONFIG]["data"]["init.sh"] == Unknown("u")

    def test_init_containers(self) -> None:
        unknown = Unknown("u")
        objects = rendered(flux(job("node", initContainers=unknown)), train_job({"numNodes": 1}))
        assert pod(objects)["initContainers"] is unknown


class Machine:
    """A folder in the place of a container's /, with programs that note how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        for folder in ("tools", "mnt/flux", "opt/software", "curve", "tmp"):
            (root / folder).mkdir(parents=True)
        (root / "curve/curve.cert").write_text("key\n")
        self.tool("hostname", "echo ${NAME:-digits-node-0-0}")
        self.tool("sleep", 'echo "sleep $*" >>"$CALLS"')
        self.tool("flux", 'echo "flux $*" >>"$CALLS"; if [ "$1" = R ]; then echo "{}"; else eval "${START:-true}"; fi')

    def tool(self, name: str, text: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def view(self, *, flux: bool = True) -> None:
        """What the image of the init container brings."""
        view = self.root / "opt/views/._view/abc123"
        for folder in ("bin", "lib/python3.11/site-packages"):
            (view / folder).mkdir(parents=True)
        for name in ("python3.11", "python3", "python", *(["flux"] if flux else [])):
            (view / "bin" / name).write_text("")
        (self.root / "opt/software/gcc").write_text("spack")

    def run(self, script: str, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        script = re.sub(r"(?<![\w/])/(mnt/flux|opt/software|opt/views|curve/|tmp/)", rf"{self.root}/\1", script)
        variables = {"PATH": f"{self.tools}:/usr/bin:/bin", "CALLS": str(self.root / "calls"), **variables}
        command = ["bash", "-c", script, "script", *args]
        return subprocess.run(command, env=variables, cwd=self.root, capture_output=True, text=True, timeout=20)

    @property
    def calls(self) -> list[str]:
        """Those of flux and sleep, with paths as in the container."""
        return (self.root / "calls").read_text().replace(str(self.root), "").splitlines()

    def read(self, path: str) -> str:
        return (self.root / path).read_text().replace(str(self.root), "")


SHARED = "mnt/flux"
BROKER = (
    "-Scron.directory=/mnt/flux/config/etc/flux/system/cron.d -Stbon.fanout=256 -Srundir=/mnt/flux/config/run/flux "
    "-Sstatedir=/mnt/flux/config/var/lib/flux -Slocal-uri=local:///mnt/flux/config/run/flux/local -Slog-stderr-level=0 "
    "-Slog-stderr-mode=local"
)
START = f"flux start -o --config /mnt/flux/config/etc/flux/config {BROKER}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestInitScript:
    def test_prepares_the_shared_volume(self, machine: Machine) -> None:
        machine.view()
        init, _ = scripts({"numNodes": 3})
        done = machine.run(init)
        assert (done.returncode, done.stderr) == (0, "")
        assert machine.read(f"{SHARED}/config/etc/flux/system/hostlist") == "digits-node-0-[0-2]\n"
        broker = machine.read(f"{SHARED}/config/etc/flux/config/broker.toml")
        assert broker.startswith("[access]\nallow-guest-user = true\nallow-root-owner = true\n[resource]\n")
        assert '[bootstrap]\ncurve_cert = "/mnt/flux/config/etc/curve/curve.cert"\ndefault_port = 8050\n' in broker
        assert broker.endswith('[sched-fluxion-qmanager]\nqueue-policy = "fcfs"\n')
        for path in ("view/bin/flux", "view/lib/python3.11/site-packages", "software/gcc", "flux-operator-done.txt"):
            assert (machine.root / SHARED / path).exists()
        for folder in ("etc/flux/system/cron.d", "etc/curve", "run/flux", "var/lib/flux"):
            assert (machine.root / SHARED / "config" / folder).is_dir()

    def test_once_more_after_a_crash(self, machine: Machine) -> None:
        machine.view()
        init, _ = scripts({})
        machine.run(init)
        assert machine.run(init).returncode == 0
        assert machine.read(f"{SHARED}/config/etc/flux/config/broker.toml").count("[bootstrap]") == 1

    def test_an_image_without_flux(self, machine: Machine) -> None:
        machine.view(flux=False)
        done = machine.run(scripts({})[0])
        assert done.returncode == 1
        assert "no flux" in done.stderr


class TestEntrypoint:
    @pytest.fixture(autouse=True)
    def prepared(self, machine: Machine) -> None:
        machine.view()
        machine.run(scripts({"numNodes": 2})[0])
        shutil.rmtree(machine.root / "opt")
        (machine.root / "opt/software").mkdir(parents=True)

    @pytest.fixture
    def entrypoint(self) -> str:
        return scripts({"numNodes": 2, "numProcPerNode": 2, "resourcesPerNode": {"limits": {GPU: 1}}})[1]

    def test_the_head_node_submits_the_command(self, machine: Machine, entrypoint: str) -> None:
        done = machine.run(entrypoint, "python train.py --lr 1")
        assert (done.returncode, done.stderr) == (0, "")
        assert machine.calls == [
            "flux R encode --hosts=digits-node-0-[0-1] --cores=0-1 --gpu=0",
            f"{START} flux run -N 2 -n 4 -g 1 python train.py --lr 1",
        ]
        assert machine.read(f"{SHARED}/config/etc/flux/system/R") == "{}\n"
        assert (machine.root / SHARED / "flux-operator-complete.txt").exists()

    def test_what_the_runtime_has_as_args_comes_last(self, machine: Machine, entrypoint: str) -> None:
        machine.run(entrypoint, "hello over", "world")
        assert machine.calls[-1].endswith(" -g 1 hello over world")

    def test_a_failed_command_fails_the_pod(self, machine: Machine, entrypoint: str) -> None:
        assert machine.run(entrypoint, "a", START="(exit 7)").returncode == 7

    def test_without_a_command_the_cluster_is_interactive(self, machine: Machine, entrypoint: str) -> None:
        assert machine.run(entrypoint, "").returncode == 0
        assert machine.calls[-1] == f"flux broker --config-path /mnt/flux/config/etc/flux/config {BROKER}"

    def test_other_nodes_follow_until_it_ended_well(self, machine: Machine, entrypoint: str) -> None:
        flag = machine.root / "flag"
        start = f"[ -e {flag} ] || {{ touch {flag}; false; }}"
        done = machine.run(entrypoint, "python train.py", NAME="digits-node-0-1", START=start)
        assert done.returncode == 0
        assert machine.calls[1:] == [START, "sleep 15", START]

    def test_flux_finds_its_own(self, machine: Machine, entrypoint: str) -> None:
        start = 'echo "$PATH|$PYTHONPATH|$LD_LIBRARY_PATH|$FLUX_RC_EXTRA|$STATE_DIR|$FLUX_OUTPUT_DIR" >"$CALLS.env"'
        machine.run(entrypoint, "a", START=start)
        path, python, *rest = machine.read("calls.env").strip().split("|")
        assert path.endswith(":/mnt/flux/view/bin")
        assert python == ":/mnt/flux/view/lib/python3.11/site-packages"
        state = "/mnt/flux/config/var/lib/flux"
        assert rest == [":/mnt/flux/view/lib", "/mnt/flux/view/etc/flux/rc1.d", state, "/tmp/fluxout"]
        assert machine.read("opt/software/gcc") == "spack"
        view = machine.root / SHARED / "view"
        assert not (view / "bin/python3").exists()
        assert (view / "lib/python3").readlink() == view / "bin/python3.11"

    def test_key_and_files_to_source(self, machine: Machine, entrypoint: str) -> None:
        machine.run(entrypoint, "a")
        key = machine.root / SHARED / "config/etc/curve/curve.cert"
        assert key.read_text() == "key\n"
        assert key.stat().st_mode & 0o077 == 0
        found = machine.run("source /mnt/flux/flux-view.sh; echo $fluxsocket").stdout
        assert found.replace(str(machine.root), "") == "local:///mnt/flux/config/run/flux/local\n"
        assert len(machine.read(f"{SHARED}/load-fluxion.sh").splitlines()) == 3

    def test_once_more_after_a_failure(self, machine: Machine, entrypoint: str) -> None:
        machine.run(entrypoint, "a", START="false")
        done = machine.run(entrypoint, "a")
        assert (done.returncode, done.stderr) == (0, "")
