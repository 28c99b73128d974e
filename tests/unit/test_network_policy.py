"""NetworkPolicies of jobs: the object, and what is refused, without a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.network_policy import NetworkPolicyArgs
from pulumi_trainer.plan import trainjob_plan
from pulumi_trainer.plan.outputs import resolve
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.program import session
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from test_podgroups import problems

NAME = "jobset.sigs.k8s.io/jobset-name"
Document = dict[str, Any]


def spec(**given: Any) -> Document:
    """Of a policy. given: Its arguments; functions return Outputs, which need a loop."""
    policy = trainer.NetworkPolicy.__new__(trainer.NetworkPolicy)

    async def made() -> Document:
        args = {name: value() if callable(value) else value for name, value in given.items()}
        found = await resolve(policy.content(NetworkPolicyArgs("p", **args)), "")
        return dict(found.document["spec"])

    return asyncio.run(made())


def test_pods_of_one_job_reach_each_other_dns_and_what_is_named() -> None:
    pods = {"matchLabels": {NAME: "train"}}
    database = trainer.Egress(cidr="10.20.0.0/16", excluded=["10.20.9.0/24"], ports=[5432, 6432])
    made = spec(job="train", egress=[database, trainer.Egress(cidr="::/0", ports=[53], protocol="UDP")])
    assert made["podSelector"] == pods and made["policyTypes"] == ["Ingress", "Egress"]
    assert made["ingress"] == [{"from": [{"podSelector": pods}]}]
    own, dns, first, second = made["egress"]
    assert own == {"to": [{"podSelector": pods}]}
    assert {port["port"] for port in dns["ports"]} == {53} and len(dns["to"]) == 2
    assert first == {
        "to": [{"ipBlock": {"cidr": "10.20.0.0/16", "except": ["10.20.9.0/24"]}}],
        "ports": [{"protocol": "TCP", "port": 5432}, {"protocol": "TCP", "port": 6432}],
    }
    assert second["ports"] == [{"protocol": "UDP", "port": 53}]


def test_all_jobs_of_a_namespace() -> None:
    made = spec(egress=[trainer.Egress(cidr="10.0.0.0/8")])
    assert made["podSelector"] == {"matchExpressions": [{"key": NAME, "operator": "Exists"}]}
    assert made["egress"][2] == {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, "all ports"
    assert len(spec()["egress"]) == 2


def test_ports_that_are_an_output() -> None:
    made = spec(egress=lambda: [trainer.Egress(cidr="10.0.0.0/8", ports=pulumi.Output.from_input([443]))])
    assert made["egress"][2]["ports"] == [{"protocol": "TCP", "port": 443}]


def test_all_that_is_wrong_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Document, str]] = [
        ({"cidr": "example.com"}, "egress[0].cidr: not a valid range of addresses: 'example.com'"),
        (
            {"cidr": "10.0.0.1/8"},
            "egress[0].cidr: not a valid range of addresses: '10.0.0.1/8'. Hint: write 10.0.0.0/8",
        ),
        ({"cidr": "10.0.0.5"}, "egress[0].cidr: not a valid range of addresses: '10.0.0.5'. Hint: write 10.0.0.5/32"),
        ({"cidr": "10.0.0.0/255.0.0.0"}, "egress[0].cidr: not a valid range of addresses: '10.0.0.0/255.0.0.0'. Hint"),
        ({"cidr": "10.0.0.0/8", "excluded": ["11.0.0.0/16"]}, "egress[0].excluded[0]: 11.0.0.0/16 is not within"),
        (
            {"cidr": "10.0.0.0/8", "excluded": ["10.0.0.0/8"]},
            "egress[0].excluded[0]: 10.0.0.0/8 is the same as the cidr",
        ),
        ({"cidr": "10.0.0.0/8", "ports": [0]}, "egress[0].ports[0]: must be a whole number from 1 to 65535, not 0"),
        ({"cidr": "10.0.0.0/8", "ports": []}, "egress[0].ports: is empty"),
        ({"cidr": "10.0.0.0/8", "protocol": "UDP"}, "egress[0].protocol: has no effect without ports"),
        ({"cidr": "10.0.0.0/8", "protocol": "tcp", "ports": [1]}, "egress[0].protocol"),
        ({"cidrs": "10.0.0.0/8"}, "egress[0].cidrs: unknown field"),
    ]

    wrong: list[tuple[Document, str]] = [
        ({"job": ""}, "job: '' is not a valid job name"),
        ({"job": "Bad_Name!"}, "job: 'Bad_Name!' is not a valid job name"),
        ({"job": 5}, "job: must be a job or the name of one, not 5"),
        ({"job": ["a"]}, "job: must be a job or the name of one"),
        ({"egress": [{"cidr": "1.2.3.4"}]}, "egress[0]: must be Egress(...), not"),
        ({"egress": trainer.Egress(cidr="10.0.0.0/8")}, "egress: must be a list, not Egress"),
    ]

    def make() -> None:
        for i, (fields, _) in enumerate(given):
            trainer.NetworkPolicy(f"p{i}", egress=[trainer.Egress(**fields)])
        trainer.NetworkPolicy("Upper")
        policy: Any = trainer.NetworkPolicy
        policy("typed", jobs=["train"])
        for i, (arguments, _) in enumerate(wrong):
            policy(f"w{i}", **arguments)

    found = problems(make, monkeypatch)
    for i, (_, said) in enumerate(given):
        assert any(f'NetworkPolicy("p{i}")' in each and said in each for each in found), (said, found)
    for i, (_, said) in enumerate(wrong):
        assert any(f'NetworkPolicy("w{i}")' in each and said in each for each in found), (said, found)
    assert any('NetworkPolicy("Upper")' in each and "name" in each for each in found), found
    assert any('NetworkPolicy("typed")' in each and "did you mean job?" in each for each in found), found


def test_values_that_are_known_later_are_checked_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        later = pulumi.Output.from_input("10.0.0.0/33")
        trainer.NetworkPolicy("p", egress=[trainer.Egress(cidr=later)])

    (found,) = problems(make, monkeypatch)
    assert "egress[0].cidr: not a valid range of addresses: '10.0.0.0/33'" in found


def test_two_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        trainer.NetworkPolicy("a", name="same")
        trainer.NetworkPolicy("b", name="same")

    (found,) = problems(make, monkeypatch)
    assert "makes NetworkPolicy 'same' too" in found


@pytest.mark.parametrize("own", [False, True])
def test_a_closed_network_is_in_the_plan_unless_the_program_opens_it(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "deny", "namespace": "team"}
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    deny = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
    monkeypatch.setattr(queries, "find_queues", lambda *_, **__: Queues((deny,)))
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    target = trainer.Kubernetes(namespace="team")

    async def planned() -> list[str]:
        session.current().has_network_policies = own
        args: Document = {"runtime": "torch-distributed", "target": target, "trainer": trainer.Trainer(num_nodes=2)}
        plan = await trainjob_plan.plan(TrainJobArgs("job", name="job", **args))
        return [each.code for each in plan.warnings if isinstance(each, Warning)]

    assert ("PT308" in asyncio.run(planned())) is not own


@pytest.mark.parametrize(("job", "affected"), [(None, {"train", "other"}), ("train", {"train"})])
def test_a_change_by_hand_affects_the_jobs_that_the_policy_selects(job: str | None, affected: set[str]) -> None:
    policy = trainer.NetworkPolicy.__new__(trainer.NetworkPolicy)
    policy._args = NetworkPolicyArgs("p", job=job)
    assert {name for name in ("train", "other") if policy.affects({"metadata": {"name": name}})} == affected
