"""Kueue's objects in programs, through the real engine and without a cluster."""

from __future__ import annotations

import re

import pytest

from .conftest import Project, Result

HEAD = """import pulumi
import pulumi_trainer as trainer
"""

WRONG = """
for name in ("q-a", "q-b"):
    trainer.ResourceFlavor(name)
quota = lambda flavor, amount, **more: trainer.FlavorQuotas(
    flavor=flavor, resources={"nvidia.com/gpu": trainer.ResourceQuota(nominal_quota=amount, **more)}
)
group = lambda *flavors: trainer.ResourceGroup(flavors=flavors)
trainer.ClusterQueue("q-negative", resource_groups=[group(quota("q-a", -1))])
trainer.ClusterQueue("q-wrong", resource_groups=[group(quota("q-a", "8 GPUs"))])
trainer.ClusterQueue("q-overlap", resource_groups=[group(quota("q-a", 1)), group(quota("q-b", 1))])
trainer.ClusterQueue("q-many", resource_groups=[group(*(quota(f"f{i}", 1) for i in range(65)))])
trainer.ClusterQueue("q-words", preemption=trainer.Preemption(within_cluster_queue="Sometimes"))
trainer.ClusterQueue("q-limit", resource_groups=[group(quota("q-a", 1, borrowing_limit=2))])
trainer.ClusterQueue("q-typo", cohort_name="x", stop_policy="Pause")
trainer.ClusterQueue("q-q", cohort=trainer.ResourceFlavor("q-c"))
trainer.Cohort("q-1", parent="q-2")
trainer.Cohort("q-2", parent="q-1")
trainer.LocalQueue("a" * 254, cluster_queue="q-q")
for name in ("q-first", "q-second"):
    trainer.LocalQueue(name, name="default", cluster_queue="q-q", namespace="team")
trainer.WorkloadPriorityClass("q-p", value=2**40)
trainer.Topology("q-t", levels=["kubernetes.io/hostname", "rack"])
trainer.ResourceFlavor("q-d", topology="q-t")
trainer.ResourceFlavor("q-e", name="q-a")
trainer.GpuQueues("q-g", teams={"a": -1, "b": "x", "c": trainer.Team(gpus=1, lendin=2)}, borrowing=-2, priority=3)
"""
SAID = [
    'ClusterQueue("q-negative") (__main__.py:10).resource_groups[0].flavors[0].resources[nvidia.com/gpu].nominal_quota:'
    " must be greater than or equal to 0",
    "resources[nvidia.com/gpu].nominal_quota: must be a quantity such as 3, 500m or 4Gi, not '8 GPUs'",
    'resource_groups[1].covered_resources[0]: Duplicate value: "nvidia.com/gpu"',
    "resource_groups[0].flavors: must have at most 64 items",
    'preemption.within_cluster_queue: supported values: "Never", "LowerPriority", "LowerOrNewerEqualPriority"',
    "borrowingLimit must be nil when cohort is empty",
    "cohort_name: unknown field. Hint: did you mean cohort?",
    "cohort: must be a Cohort or its name, not a ResourceFlavor",
    "is a cycle: q-1 -> q-2 -> q-1",
    "name: must be no more than 253 characters",
    'WorkloadPriorityClass("q-p") (__main__.py:23): Checked value must be of type integer with format int32 in value',
    'stop_policy: supported values: "None", "Hold", "HoldAndDrain"',
    "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    "no such key: nodeLabels evaluating rule: at least one nodeLabel is required when topology is set",
    "another ResourceFlavor of the program has the name q-a too",
    "another LocalQueue of the program has the name default too",
    "teams[a].gpus: must be 0 or more, not -1",
    "teams[b].gpus: must be a number of GPUs, not 'x'",
    "teams[c].lendin: unknown field. Hint: did you mean lending?",
    "borrowing: must be 0 or more, not -2",
    "priority: unknown field. Hint: did you mean priorities?",
]


def says_all(result: Result, words: list[str]) -> str:
    assert [each for each in words if each not in result.out] == [], result.out
    assert "Traceback" not in result.out
    return result.out


@pytest.mark.core
def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_made(project: Project) -> None:
    project.program(WRONG, HEAD)
    says_all(project.up(ok=False), SAID)
    assert {r["type"] for r in project.export()["deployment"].get("resources") or []} <= {"pulumi:pulumi:Stack"}


SHAPES_AND_VALUES = """
trainer.ClusterQueue(
    "both", cohort=5, preemtion=3, on_delete="never", labels="x", resource_groups=[
        trainer.ResourceGroup(flavors=[3, trainer.FlavorQuotas(flavor="f", resources={
            "cpu": trainer.ResourceQuota(nominal_quota=-2, borowing_limit=2), "memory": "x",
        })]),
    ],
)
trainer.LocalQueue("late", cluster_queue="both", fair_sharing=trainer.FairSharing(weight=pulumi.Output.from_input("y")))
trainer.TrainJob(
    "job", runtime="torch-distributed", max_execution="4h", trainr=3, topology=trainer.Required("a b"),
)
trainer.Cohort("cohort", target="cluster")
"""
BOTH = [
    'ClusterQueue("both") (__main__.py:4).cohort: must be a Cohort or its name, not 5',
    "preemtion: unknown field. Hint: did you mean preemption?",
    "on_delete: must be refuse or drain, not 'never'",
    "labels: must be a mapping, not str",
    "resource_groups[0].flavors[0]: must be a FlavorQuotas, not int",
    'resources["cpu"].borowing_limit: unknown field. Hint: did you mean borrowing_limit?',
    "resources[cpu].nominal_quota: must be greater than or equal to 0",
    "resources[memory].nominal_quota: must be a quantity such as 3, 500m or 4Gi, not 'x'",
    'LocalQueue("late") (__main__.py:11).fair_sharing.weight: should match',
    'TrainJob("job") (__main__.py:12).trainr: unknown field. Hint: did you mean trainer?',
    "max_execution: must be a whole number of seconds from 1 to 2147483647, not 4h",
    "topology.level: 'a b' is not a valid node label",
    "target: must be Local(...) or Kubernetes(...), not 'cluster'",
    "target: queues are objects of a cluster. Hint: give a Kubernetes(...)",
]


def test_wrong_words_and_wrong_values_are_said_together(project: Project) -> None:
    project.program(SHAPES_AND_VALUES, HEAD)
    assert f"{len(BOTH)} problems found" in says_all(project.preview(ok=False), BOTH)


OF_TEAMS = """
trainer.GpuQueues(
    "gpus", teams={"a b": 1, "ok": trainer.Team(gpus=2, namespace="x_y", borowing=3)}, others={"cpu": "-1", "a key": 2},
    gpus={"gpus": {"gpu type": "x"}}, topology=["kubernetes.io/hostname", "rack"], drain_seconds=-1,
)
trainer.GpuQueues("second", teams=["nlp"], topology="rack")
trainer.GpuQueues("Bad Name", teams={"c": 1}, priorities=(), topology=["a"])
queues = trainer.GpuQueues("third", teams={"a": 3, "b": 1}, cohort="gpus", borrowing=2**70, others={"cpu": {"of": 1}})
trainer.Cohort("child", parent="A B", opts=pulumi.ResourceOptions(parent=queues))
"""
BY_ARGUMENT = [
    ("gpus", "teams[a b]: 'a b' is not a valid name: a lowercase RFC 1123 subdomain"),
    ("gpus", "teams[ok].borowing: unknown field. Hint: did you mean borrowing?"),
    ("gpus", "others[cpu]: must be 0 or more, not -1"),
    ("gpus", "others[a key]: 'a key' is not a valid resource name: "),
    ("gpus", "gpus[gpus]"),
    ("gpus", "topology: the kubernetes.io/hostname label can only be used at the lowest level"),
    ("gpus", "drain_seconds: must be a number of seconds, 0 to 86400, not -1"),
    ("second", 'teams: must name at least one team and its GPUs. Hint: for example teams={"nlp": 16}'),
    (
        "second",
        'priorities: GpuQueues("gpus") (__main__.py:4) creates the WorkloadPriorityClasses low, normal, high too. Hint: give',
    ),
    (
        "third",
        'priorities: GpuQueues("gpus") (__main__.py:4) creates the WorkloadPriorityClasses low, normal, high too',
    ),
    ("third", 'cohort: GpuQueues("gpus") (__main__.py:4) creates a cohort gpus too. Hint: create one Cohort for both'),
    ("Bad Name", "name: 'Bad Name' is not a valid name: a lowercase RFC 1123 subdomain"),
    ("third", "others[cpu]: must be a quantity, not {'of': 1}"),
]


def test_what_is_wrong_with_gpus_of_teams_is_said_of_their_arguments(project: Project) -> None:
    project.program(OF_TEAMS, HEAD)
    told = project.preview(ok=False).out
    lines = [line.strip() for line in told.splitlines() if line.strip().startswith("GpuQueues(")]
    for name, said in BY_ARGUMENT:
        assert any(line.startswith(f'GpuQueues("{name}") (__main__.py:') and said in line for line in lines), (
            said,
            told,
        )
    assert 'Cohort("child") (__main__.py:' in told
    assert sum(line.startswith('GpuQueues("Bad Name")') for line in lines) == 2, told
    assert not any(inner in told for inner in ("resource_groups", "ClusterQueue(", "LocalQueue(", "PriorityClass("))


def test_one_wrong_object_stops_the_others_and_what_is_known_later_is_checked_then(project: Project) -> None:
    """A value that comes from elsewhere is wrong; a cluster that nobody reaches is not asked for anything."""
    project.config("trainer:kubeconfig", "/nowhere")
    project.program(
        """
        flavor = trainer.ResourceFlavor("flavor")
        amount = pulumi.Output.from_input({"a": -4}).apply(lambda found: found["a"])
        quotas = trainer.FlavorQuotas(flavor=flavor, resources={"nvidia.com/gpu": amount})
        trainer.ClusterQueue("team", resource_groups=[trainer.ResourceGroup(flavors=[quotas])])
        trainer.LocalQueue("queue", cluster_queue="team", labels={"token": pulumi.Output.secret("x")})
        """,
        HEAD,
    )
    told = project.up(ok=False).out
    assert "resources[nvidia.com/gpu].nominal_quota: must be greater than or equal to 0" in told
    assert 'LocalQueue("queue")' in told and "is secret" in told and "Traceback" not in told


def test_a_stack_for_this_machine_checks_them_and_makes_none(project: Project) -> None:
    project.config("trainer:target", "local")
    teams = """
    queues = trainer.GpuQueues(
        "gpus", teams={"nlp": 16, "vision": trainer.Team(gpus=8, borrowing=4, lending=2, weight=0.5)},
        gpus={"h100": {"gpu": "h100"}}, topology=["rack", "kubernetes.io/hostname"],
    )
    pulumi.export("quotas", queues.quotas)
    pulumi.export("names", [queues.queues["nlp"].name, queues.cluster_queues["nlp"].name, *queues.priorities])
    """
    project.program(teams, HEAD)
    project.up()
    assert not [
        r for r in project.export()["deployment"]["resources"] if r["type"].startswith(("kubernetes:", "pulumi-python"))
    ]
    rows = project.outputs()["quotas"]
    assert [(r["team"], r["own"], r["borrows"], r["lends"], r["of"]) for r in rows] == [
        ("nlp", 16, None, None, 18), ("vision", 8, 4, 2, 24),
    ]  # fmt: skip
    assert project.outputs()["names"] == ["nlp", "gpus-nlp", "low", "normal", "high"]
    project.program(teams.replace('"nlp": 16', '"nlp": 16, "-": 4'), HEAD)
    assert (
        "teams[-]: '-' is not a valid name" in (told := project.up(ok=False).out)
        and "must consist of lower case" in told
    )


def test_kinds_of_gpus_that_a_team_borrows_and_pods_where_there_is_a_topology(project: Project) -> None:
    project.config("trainer:target", "local")
    teams = """
    queues = trainer.GpuQueues(
        "gpus", teams={"nlp": {"h100": 16}, "vision": trainer.Team(gpus=0, borrowing={"h100": 8})},
        gpus={"h100": {"gpu": "h100"}, "l40s": {"gpu": "l40s"}}, topology=["kubernetes.io/hostname"],
    )
    pulumi.export("quotas", queues.quotas)
    pulumi.export("covered", queues.cluster_queues["nlp"].document["spec"]["resourceGroups"][0]["coveredResources"])
    """
    project.program(teams, HEAD)
    project.up()
    rows = project.outputs()["quotas"]
    assert [(r["team"], r["flavor"], r["own"], r["borrows"]) for r in rows] == [
        ("nlp", "h100", 16, None), ("nlp", "l40s", 0, None), ("vision", "h100", 0, 8), ("vision", "l40s", 0, 0),
    ]  # fmt: skip
    assert "pods" in project.outputs()["covered"], "what initializers without requests get a place by"
    project.program(teams.replace('topology=["kubernetes.io/hostname"],', ""), HEAD)
    project.up()
    assert "pods" not in project.outputs()["covered"]
    project.program(teams.replace('{"h100": 8}', '{"h10": 8, "l40s": -1}').replace("gpus=0", "gpus=1"), HEAD)
    told = project.up(ok=False).out
    assert "teams[vision].borrowing[h10]: unknown kind of GPU. Hint: did you mean h100?" in told, told
    assert "teams[vision].borrowing[l40s]: must be 0 or more, not -1" in told
    assert "teams[vision].gpus: must be a mapping from kinds of GPUs to numbers" in told


def test_profiles_of_mig_are_kinds_with_a_resource_of_their_own(project: Project) -> None:
    project.config("trainer:target", "local")
    teams = """
    queues = trainer.GpuQueues(
        "gpus", teams={"nlp": {"h100": 16, "small": 14}, "vision": {"h100": 8}},
        gpus={"h100": {"gpu": "h100"}, "small": {"gpu": "h100-1g"}}, resource={"small": "nvidia.com/mig-1g.10gb"},
    )
    pulumi.export("quotas", queues.quotas)
    pulumi.export("group", queues.cluster_queues["nlp"].document["spec"]["resourceGroups"][0])
    """
    project.program(teams, HEAD)
    project.up()
    rows = project.outputs()["quotas"]
    assert [(r["team"], r["flavor"], r["resource"], r["own"], r["of"]) for r in rows] == [
        ("nlp", "h100", "nvidia.com/gpu", 16, 24), ("vision", "h100", "nvidia.com/gpu", 8, 24),
        ("nlp", "small", "nvidia.com/mig-1g.10gb", 14, 14), ("vision", "small", "nvidia.com/mig-1g.10gb", 0, 14),
    ]  # fmt: skip
    group = project.outputs()["group"]
    assert group["coveredResources"][:2] == ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]
    nominal = [[str(each["nominalQuota"]) for each in flavor["resources"][:2]] for flavor in group["flavors"]]
    assert nominal == [["16", "0"], ["0", "14"]], "each kind has its own resource alone"
    wrong = teams.replace('{"small": "nvidia.com/mig-1g.10gb"}', '{"smal": "nvidia.com/mig-1g.10gb", "small": 4}')
    project.program(wrong, HEAD)
    told = project.up(ok=False).out
    assert "resource[smal]: unknown kind of GPU. Hint: available: h100, small" in told, told
    assert "resource[small]: must be text, not 4" in told


def test_a_team_that_is_not_there_is_told_without_a_traceback(project: Project) -> None:
    program = """
    queues = trainer.GpuQueues("gpus", teams={"nlp": %s})
    print(queues.queues["vision"].name)
    """
    for gpus, said in (
        ("1", "has no queue of 'vision':\n    teams are nlp"),
        ("-1", "teams[nlp].gpus: must be 0 or more, not -1"),
    ):
        project.program(program % gpus, HEAD)
        told = project.up(ok=False).out
        assert " ".join(said.split()) in " ".join(told.split()) and "Traceback" not in told


def test_a_renamed_team_keeps_its_cluster_queue(project: Project) -> None:
    project.config("trainer:target", "local")
    program = """
    queues = trainer.GpuQueues("gpus", teams={"research": trainer.Team(gpus=8, %s), "nlp": 16})
    pulumi.export("names", [queues.queues["research"].name, queues.cluster_queues["research"].name])
    pulumi.export("rows", [[row["team"], row["cluster_queue"]] for row in queues.quotas])
    """
    project.program(program % 'namespace="rl", renamed_from="rl", hold=True', HEAD)
    told = project.up().out
    assert re.findall(r"trainer:index:LocalQueue +(\S+)", told) and "PT213" not in told, told
    assert project.outputs() == {
        "names": ["research", "gpus-rl"],
        "rows": [["research", "gpus-rl"], ["nlp", "gpus-nlp"]],
    }
    for given, said in (
        (
            'renamed_from="rl"',
            "teams[research].renamed_from: requires namespace=, since the team's jobs stay in their namespace",
        ),
        ('namespace="x", renamed_from="nlp"', "teams[research].renamed_from: nlp is still one of the teams"),
        ('namespace="x", renamed_from="R L"', "teams[research].renamed_from: 'R L' is not a valid name"),
        ('hold="yes"', "teams[research].hold: must be True or False, not 'yes'"),
    ):
        project.program(program % given, HEAD)
        told = project.up(ok=False).out
        assert said in told and "Traceback" not in told, told


WITHOUT_CLUSTER_QUEUE = """
trainer.LocalQueue("lost", cluster_queue="nowhere", namespace="team")
trainer.ClusterQueue("held", stop_policy="Hold")
"""


def test_a_stack_whose_target_is_local_gets_no_warnings_about_queues(project: Project) -> None:
    project.program(WITHOUT_CLUSTER_QUEUE, HEAD)
    project.config("trainer:kubeconfig", str(project.folder / "nowhere"))
    assert "PT213: ClusterQueue held: spec.stopPolicy: is Hold" in project.preview(ok=False).out
    project.config("trainer:target", "local")
    assert not re.search(r"PT2\d\d", (out := project.preview().out)), out


TWO_PRIORITIES = """
queues = trainer.GpuQueues("gpus", teams={"nlp": 1}, priorities=%s)
pulumi.export("values", {name: made.document["value"] for name, made in queues.priorities.items()})
"""


def test_one_of_two_priorities_has_the_value_of_jobs_without_one(project: Project) -> None:
    project.config("trainer:target", "local")
    project.program(TWO_PRIORITIES % '("batch", "prod")', HEAD)
    told = " ".join(project.up().out.split())
    assert (
        ".priorities: 'prod' has the value 0, like jobs without a priority class. Hint: set the values yourself: "
        in told
    )
    assert "priorities={'batch': -1000, 'prod': 1000}" in told
    assert project.outputs()["values"] == {"batch": -1000, "prod": 0}, "a stack keeps these values"
    for named in ("{'batch': -1000, 'prod': 1000}", "('low', 'normal', 'high')"):
        project.program(TWO_PRIORITIES % named, HEAD)
        assert "has the value 0" not in project.preview().out
