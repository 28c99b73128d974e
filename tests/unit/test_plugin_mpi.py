"""MPI: counts, slots, keys, hostfile, and what the webhook has against a job."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_support import container, env, job, main, pods, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import render

GPU = "nvidia.com/gpu"


def mpi(*jobs: dict[str, Any], nodes: Any = None, network: Any = None, **policy: Any) -> dict[str, Any]:
    """A launcher and a node, as in the runtimes that Trainer ships."""
    numbers = {} if nodes is None else {"numNodes": nodes}
    more = {} if network is None else {"network": network}
    return runtime({**numbers, "mpi": policy}, *(jobs or (job("launcher"), job("node", ""))), **more)


def hostfile(objects: dict[str, Any]) -> Any:
    return objects["ConfigMap/digits-mpi-hostfile"]["data"]["hostfile"]


class TestPods:
    def test_variables_of_open_mpi_5_in_mode_jobset(self) -> None:
        objects = rendered(mpi(), train_job({"numProcPerNode": 4}), mode="jobset")
        assert main(objects, "launcher")["env"][4:] == [
            {"name": "PRTE_MCA_prte_default_hostfile", "value": "/etc/mpi/hostfile"},
            {"name": "PRTE_MCA_prte_keep_fqdn_hostnames", "value": "false"},
            {"name": "PRTE_MCA_prte_set_default_slots", "value": "4"},
            {"name": "PRTE_MCA_plm_ssh_args", "value": "-o ConnectionAttempts=10"},
        ]
        assert "env" not in main(objects)

    def test_variables_of_open_mpi_5_that_the_user_has_set_stay(self) -> None:
        own = {"PRTE_MCA_prte_keep_fqdn_hostnames": "true", "PRTE_MCA_plm_ssh_args": "-v"}
        tj = train_job({"env": [{"name": name, "value": value} for name, value in own.items()]})
        found = env(main(rendered(mpi(), tj, mode="jobset"), "launcher"))
        assert own.items() <= found.items() and found["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"

    def test_env_of_the_job_goes_to_the_launcher_and_as_node_to_both(self) -> None:
        tj = train_job({"env": [{"name": "A", "value": "1"}]})
        assert "env" not in main(rendered(mpi(), tj))
        assert env(main(rendered(mpi(), tj), "launcher"))["A"] == "1"
        assert env(main(rendered(mpi(runLauncherAsNode=True), tj)))["A"] == "1"

    @pytest.mark.parametrize("as_node", [False, True])
    def test_resources(self, as_node: bool) -> None:
        tj = train_job({"resourcesPerNode": {"limits": {"cpu": 2}}})
        objects = rendered(mpi(runLauncherAsNode=as_node), tj)
        assert main(objects, "launcher")["resources"] == {"limits": {"cpu": "2"}}
        assert main(objects)["resources"] == ({"limits": {"cpu": "2"}} if as_node else {})


class TestCounts:
    @pytest.mark.parametrize(
        ("nodes", "as_node", "wanted"),
        [(1, False, 1), (3, False, 3), (0, False, 0), (1, True, 1), (2, True, 1), (4, True, 3), (0, True, 1)],
    )
    def test_nodes_of_the_job(self, nodes: int, as_node: bool, wanted: int) -> None:
        objects = rendered(mpi(runLauncherAsNode=as_node), train_job({"numNodes": nodes}))
        assert pods(objects)["parallelism"] == pods(objects)["completions"] == wanted
        assert pods(objects, "launcher")["parallelism"] == 1


class TestSlots:
    @pytest.mark.parametrize(
        ("own", "given", "resources", "wanted"),
        [
            (None, None, None, 1),
            (1, None, {"limits": {GPU: 8}}, 8),
            (1, None, {"limits": {GPU: 1}}, 1),
            (1, None, {"limits": {GPU: "1500m"}}, 2),
            (1, None, {"limits": {"nvidia.com/mig-1g.5gb": 4}}, 1),
            (2, None, {"limits": {GPU: 8}}, 2),
            (1, 3, {"limits": {GPU: 8}}, 3),
            (1, None, {"limits": {GPU: 2**32 + 3}}, 3),
        ],
    )
    def test_of_job_runtime_or_gpus(self, own: Any, given: Any, resources: Any, wanted: int) -> None:
        policy = {} if own is None else {"numProcPerNode": own}
        trainer = {"numProcPerNode": given} if given else {}
        trainer |= {"resourcesPerNode": resources} if resources else {}
        objects = rendered(mpi(**policy), train_job(trainer))
        assert env(main(objects, "launcher"))["OMPI_MCA_orte_set_default_slots"] == str(wanted)
        assert hostfile(objects) == f"digits-node-0-0.digits slots={wanted}\n"

    def test_gpus_of_the_runtime_count_unless_the_job_says(self) -> None:
        jobs = [job("launcher", None, container(resources={"limits": {GPU: 4}})), job("node", "")]
        assert "slots=4" in hostfile(rendered(mpi(*jobs), train_job({})))
        tj = train_job({"resourcesPerNode": {"limits": {"cpu": 1}}})
        assert "slots=1" in hostfile(rendered(mpi(*jobs), tj))


class TestHostfile:
    def test_in_the_order_of_the_template(self) -> None:
        rt = mpi(job("launcher"), job("node", ""), runLauncherAsNode=True)
        wanted = ["digits-launcher-0-0.digits", "digits-node-0-0.digits", "digits-node-0-1.digits"]
        found = hostfile(rendered(rt, train_job({"numNodes": 3})))
        assert found == "".join(f"{host} slots=1\n" for host in wanted)
        rt = mpi(job("node", ""), job("launcher"), runLauncherAsNode=True)
        assert hostfile(rendered(rt, train_job({}))).startswith("digits-node-")

    def test_too_large_for_a_config_map(self) -> None:
        with pytest.raises(Invalid, match=r"spec\.trainer\.numNodes: gives a hostfile that is larger"):
            rendered(mpi(), train_job({"numNodes": 2**31 - 1}))


class TestImplementation:
    def test_none_fails_for_ever_in_the_controller(self) -> None:
        with pytest.raises(Invalid, match=r"spec\.mlPolicy\.mpi\.mpiImplementation: is not OpenMPI"):
            rendered(mpi(mpiImplementation=""), train_job({}))

    @pytest.mark.parametrize("name", ["numProcPerNode", "mpiImplementation", "sshAuthMountPath"])
    def test_a_runtime_without_defaults(self, name: str) -> None:
        """As in a snapshot that somebody wrote; upstream's controller panics."""
        policy = {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/root/.ssh"}
        render(mpi(**policy), train_job({}))
        del policy[name]
        with pytest.raises(Invalid, match=rf"spec\.mlPolicy\.mpi\.{name}: is missing"):
            render(mpi(**policy), train_job({}))


class TestWebhook:
    @pytest.mark.parametrize("jobs", [[job("launcher")], [job("node")], [job("work")]])
    def test_launcher_as_node_needs_both_jobs(self, jobs: list[dict[str, Any]]) -> None:
        why = (
            "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either launcher and node"
        )
        rt = mpi(*jobs, runLauncherAsNode=True)
        assert [(p.where, p.why) for p in problems(rt, train_job({"numNodes": 2}))] == [("spec.trainer.numNodes", why)]
        for trainer in ({"numNodes": 1}, {}, None):
            assert problems(rt, train_job(trainer)) == []
        assert problems(mpi(*jobs), train_job({"numNodes": 2})) == []
        assert problems(mpi(runLauncherAsNode=True), train_job({"numNodes": 2})) == []

    def test_reserved_names_are_told_sorted(self) -> None:
        names = ["OMPI_MCA_plm_rsh_args", "A", "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_args"]
        names += ["OMPI_MCA_orte_set_default_slots", "OMPI_MCA_orte_keep_fqdn_hostnames"]
        tj = train_job({"env": [{"name": name} for name in names]})
        (found,) = problems(mpi(), tj)
        assert found.where == "spec.trainer.env"
        assert found.why == (
            "must not have reserved envs, invalid envs configured: [OMPI_MCA_orte_default_hostfile "
            "OMPI_MCA_orte_keep_fqdn_hostnames OMPI_MCA_orte_set_default_slots OMPI_MCA_plm_rsh_args]"
        )
        assert problems(runtime({"torch": {}}), tj) == []


class TestUnknown:
    def test_number_of_nodes(self) -> None:
        unknown = Unknown("n")
        for as_node in (False, True):
            rt, tj = mpi(runLauncherAsNode=as_node), train_job({"numNodes": unknown})
            assert pods(rendered(rt, tj))["parallelism"] is hostfile(rendered(rt, tj)) is unknown
            assert problems(rt, tj) == []

    @pytest.mark.parametrize("trainer", [{"numProcPerNode": Unknown("n")}, {"resourcesPerNode": Unknown("n")}])
    def test_slots(self, trainer: dict[str, Any]) -> None:
        objects = rendered(mpi(), train_job(trainer))
        assert env(main(objects, "launcher"))["OMPI_MCA_orte_set_default_slots"] == Unknown("n")
        assert hostfile(objects) == Unknown("n")

    def test_host_names(self) -> None:
        unknown = Unknown("net")
        assert hostfile(rendered(mpi(network={"subdomain": unknown}), train_job({}))) is unknown
        assert (
            hostfile(rendered(mpi(job("launcher"), {**job("node", ""), "replicas": unknown}), train_job({}))) is unknown
        )

    def test_implementation_counts_as_right(self) -> None:
        assert "slots=1" in hostfile(rendered(mpi(mpiImplementation=Unknown("i")), train_job({})))

    def test_names_of_jobs(self) -> None:
        rt = mpi(job("launcher"), {**job("node", ""), "name": Unknown("n")}, runLauncherAsNode=True)
        assert problems(rt, train_job({"numNodes": 2})) == []
