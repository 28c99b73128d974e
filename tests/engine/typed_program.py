"""A program with every component and every class of arguments, as a user writes it: type checkers have nothing against it."""

from pathlib import Path

import pulumi
import pulumi_trainer as trainer
from pulumi_kubernetes.core.v1 import (
    ContainerArgs,
    PodResourceClaimArgs,
    PodSpecArgs,
    ResourceClaimArgs,
    ResourceRequirementsArgs,
)

config = pulumi.Config()
cluster = trainer.Kubernetes(
    workers={"west": trainer.Worker(kubeconfig="west", context="west")}, namespace="team", mode="jobset", context="lab"
)
machine = trainer.Local(root="jobs", python="python3")


def train(lr: float) -> None:
    print(lr)


# Runtimes
node = trainer.ReplicatedJob(
    name="node",
    pod_spec=PodSpecArgs(containers=[ContainerArgs(name="node", image="python:3.12")]),
    depends_on=[trainer.DependsOn(name="dataset-initializer", status="Complete")],
    pod_failure_policy=trainer.PodFailurePolicy(
        rules=[
            trainer.PodFailurePolicyRule(
                action="Ignore",
                on_exit_codes=trainer.OnExitCodes(operator="In", values=[3]),
                on_pod_conditions=[trainer.OnPodCondition(type="DisruptionTarget", status="True")],
            )
        ]
    ),
)
template = trainer.JobSetTemplate(
    replicated_jobs=[node],
    network=trainer.Network(enable_dns_hostnames=True),
    success_policy=trainer.SuccessPolicy(operator="All"),
    failure_policy=trainer.FailurePolicy(max_restarts=2, rules=[trainer.FailurePolicyRule(action="RestartJobSet")]),
)
claiming = PodSpecArgs(
    resource_claims=[PodResourceClaimArgs(name="gpus", resource_claim_template_name="eight-gpus")],
    containers=[
        ContainerArgs(
            name="node",
            image="python:3.12",
            resources=ResourceRequirementsArgs(claims=[ResourceClaimArgs(name="gpus")]),
        )
    ],
)
trainer.ClusterTrainingRuntime(
    "claims",
    ml_policy=trainer.TorchPolicy(),
    template=trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec=claiming)]),
)
plain = trainer.ClusterTrainingRuntime("plain", ml_policy=trainer.PlainPolicy(num_nodes=2), template=template)
for policy in (
    trainer.TorchPolicy(env_injection=[trainer.EnvInjectionTarget(job_name="node", container_names=["a"])]),
    trainer.MPIPolicy(num_proc_per_node=2, mpi_implementation="OpenMPI"),
    trainer.JAXPolicy(),
    trainer.XGBoostPolicy(),
    trainer.FluxPolicy(num_proc_per_node=1),
    trainer.TensorFlowPolicy(workers=2, ps=1, chief=1, evaluator=1, port=3000),
    trainer.PaddlePolicy(num_nodes=2, port=7000),
):
    trainer.TrainingRuntime(f"runtime-{policy.framework}", ml_policy=policy, template=template, force=True)
for gang in (
    trainer.CoschedulingPolicy(schedule_timeout_seconds=30),
    trainer.VolcanoPolicy(network_topology=trainer.VolcanoNetworkTopology(mode="soft")),
    trainer.KAIPolicy(queue="research"),
):
    trainer.ClusterTrainingRuntime("gang", pod_group_policy=gang, template=template)
released = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0", adopt="existing")
catalog = trainer.RuntimeCatalog.from_dir("runtimes")
channel = trainer.RuntimeChannel("stable", release="torch-team@1.0.0", catalog=catalog)
trainer.RuntimeChannel(
    "next",
    release="torch-team@1.0.0",
    catalog=catalog,
    waves=[["ci/canary"], ["nlp"]],
    soak="2h",
    max_regression={"loss": 1.02},
    max_duration="90m",
)

# Data
token = config.require_secret("token")
dataset = trainer.DatasetInitializer("digits", storage_uri="hf://acme/digits", access_token=token, size="20Gi")
model = trainer.ModelInitializer(
    "llama", storage_uri="s3://bucket/llama", region="eu-west-1", access_mode="ReadWriteMany"
)
sources: list[trainer.DataSource] = [
    trainer.DataSource(storage_uri="file://data"),
    trainer.HuggingFaceDatasetInitializer(storage_uri="hf://acme/digits", access_token=token),
    trainer.HuggingFaceModelInitializer(storage_uri="hf://acme/llama"),
    trainer.S3DatasetInitializer(storage_uri="s3://bucket/digits", endpoint="http://s3"),
    trainer.S3ModelInitializer(storage_uri="s3://bucket/llama"),
    trainer.DataCacheInitializer(storage_uri="cache://schema/table", num_data_nodes=2, iam_role="reader"),
]

# Queues
racks = trainer.Topology("racks", levels=["rack", "kubernetes.io/hostname"])
flavor = trainer.ResourceFlavor("h100", node_labels={"gpu": "h100"}, topology=racks)
cohort = trainer.Cohort("all", fair_sharing=trainer.FairSharing(weight=2))
group = trainer.ResourceGroup(
    flavors=[
        trainer.FlavorQuotas(flavor=flavor, resources={"cpu": trainer.ResourceQuota(nominal_quota=8), "memory": "1Ti"})
    ]
)
provisioning = trainer.ProvisioningRequestConfig(
    "nodes", provisioning_class_name="check.autoscaling", retry_strategy=trainer.RetryStrategy(backoff_limit_count=1)
)
elsewhere = trainer.MultiKueueConfig("elsewhere", clusters=[trainer.MultiKueueCluster("other", kubeconfig="other")])
checks = [
    trainer.AdmissionCheck("provisioned", parameters=provisioning),
    trainer.AdmissionCheck("sent", parameters=elsewhere),
    trainer.AdmissionCheck(
        "own",
        parameters=trainer.CheckParameters(api_group="acme.io", kind="Check", name="own"),
        controller_name="acme.io/own",
    ),
]
shared = trainer.ClusterQueue(
    "shared",
    resource_groups=[group],
    cohort=cohort,
    queueing_strategy="StrictFIFO",
    preemption=trainer.Preemption(
        within_cluster_queue="LowerPriority", borrow_within_cohort=trainer.BorrowWithinCohort(policy="LowerPriority")
    ),
    flavor_fungibility=trainer.FlavorFungibility(when_can_borrow="TryNextFlavor"),
    admission_checks=[trainer.AdmissionCheckRule(check_name=checks[0], on_flavors=[flavor]), checks[1], "own"],
    concurrent_admission_policy=trainer.ConcurrentAdmissionPolicy(mode="TryPreferredFlavors"),
    on_delete="drain",
)
queue = trainer.LocalQueue("team", cluster_queue=shared, namespace="team")
urgent = trainer.WorkloadPriorityClass("urgent", value=1000, description="Before all others")
gpus = trainer.GpuQueues(
    "gpus",
    teams={"nlp": 16, "vision": trainer.Team(gpus=8, borrowing=4)},
    target=cluster,
    adopt=True,
    memory={"gpus": "80Gi"},
)
trainer.NetworkPolicy("alone", job="train", egress=[trainer.Egress(cidr="10.0.0.0/8", ports=[443], protocol="TCP")])
trainer.CoschedulingPodGroup("four", min_member=4, min_resources={"nvidia.com/gpu": 32})
trainer.VolcanoPodGroup("three", min_member=3, min_task_member={"node": 3}, queue="research")

# Jobs
patch = trainer.RuntimePatch(
    manager="acme.io/platform",
    jobs=[
        trainer.JobPatch(
            name="node",
            pod=trainer.PodPatch(
                node_selector={"zone": "a"}, containers=[trainer.ContainerPatch(name="side", env={"LEVEL": "info"})]
            ),
        )
    ],
)
job = trainer.TrainJob(
    "project",
    runtime=plain,
    trainer=trainer.CustomTrainer(
        module="pkg.train",
        source=trainer.Source("..", include=["pkg/"], exclude=["*.csv"]),
        requirements="requirements.txt",
    ),
)
trainer.TrainJob(
    "revision",
    runtime=plain,
    trainer=trainer.CustomTrainer(
        script=Path("train.py"), source=trainer.Source(Path(), git="https://example.com/a.git", revision="v1")
    ),
)
trainer.TrainJob(
    "train",
    runtime=plain,
    trainer=trainer.CustomTrainer(func=train, func_args={"lr": 0.1}, num_nodes=2, env={"TOKEN": token}),
    initializer=trainer.Initializer(dataset=dataset, model=model),
    runtime_patches=[patch],
    queue=queue,
    priority=urgent,
    topology=trainer.Required("rack", slice_level="rack", slice_size=2),
    output=trainer.OutputVolume(size="1Gi", retain=True),
    wait_for="running",
    may_fail=True,
    expected_hours=1.5,
    logs="keep",
    timeouts={"admitted": 600, "running": 60},
    interrupt="allow",
    hardening="restricted",
    target=cluster,
    opts=pulumi.ResourceOptions(protect=True),
)
trainer.TrainJob(
    "saves",
    runtime=plain,
    trainer=trainer.CustomTrainer(
        func=train,
        func_args={"lr": 0.1},
        num_nodes=2,
        parameters="8B",
        method="lora",
        lora_rank=16,
        precision="bf16",
        optimizer="adamw_8bit",
        sharding="fsdp",
        batch_size=4,
        sequence_length=2048,
        hidden_size=4096,
        num_layers=32,
        gradient_checkpointing=True,
    ),
    checkpoint=trainer.CheckpointPolicy(
        every="10m", keep=2, grace=60, max_restarts=1, to=trainer.OutputVolume(size="1Gi")
    ),
    interrupt="checkpoint",
    tracking=trainer.WandB(project="digits", entity="research", mode="offline", api_key=token),
    fork=trainer.Fork("t4kz1f", step=100, reset=["optimizer"]),
    keep_runs=5,
)
for tracker in (
    trainer.MLflow("http://mlflow:5000", experiment="lab", token=token, username=token, password=token),
    trainer.MLflow("http://mlflow:5000", secret_ref="mlflow"),
    trainer.WandB(secret_ref="wandb"),
    trainer.TensorBoard(),
    trainer.Trackio(project="digits"),
):
    tracked = trainer.TrainJob("tracked", runtime=plain, trainer=trainer.CustomTrainer(func=train), tracking=tracker)
    pulumi.export("run", tracked.tracking_link)
for place in (trainer.Preferred("rack"), trainer.Unconstrained(slice_size=2, slice_level="rack")):
    trainer.TrainJob("placed", runtime=channel, follow="minor", topology=place, queue=gpus.queues["nlp"], name="placed")
trainer.TrainJob("raw", runtime="torch-distributed@2.3.0", trainer=trainer.Trainer(command=["true"], num_nodes=1))
trainer.TrainJob("other", runtime=pulumi.StackReference("platform").get_output("stable"), target=machine)
trainer.TrainJob(
    "tune",
    runtime="torchtune-llama3.2-1b",
    initializer=trainer.Initializer(dataset=sources[1], model=sources[2]),
    trainer=trainer.BuiltinTrainer(
        config=trainer.TorchTuneConfig(
            dtype=trainer.DataType.BF16,
            loss=trainer.Loss.CEWithChunkedOutputLoss,
            peft_config=trainer.LoraConfig(lora_rank=8),
            dataset_preprocess_config=trainer.TorchTuneInstructDataset(
                source=trainer.DataFormat.PARQUET, split="train"
            ),
        )
    ),
)


def short(completions: list[str], **columns: object) -> list[float]:
    return [-float(len(each)) for each in completions]


for tool, made in {
    "trl-distributed": trainer.TRLTrainer(
        method="grpo",
        reward=short,
        config={"seed": 1},
        lora=trainer.LoraConfig(),
        generation=trainer.GenerationServer(resources_per_node={"cpu": 1}, config={"max_model_len": 4096}),
    ),
    "transformers-distributed": trainer.TransformersTrainer(config={"seed": 1}, num_nodes=2, parameters="350M"),
    "llamafactory": trainer.LlamaFactoryTrainer(stage="sft", config={"seed": 1}, resources_per_node={"gpu": 8}),
    "torchtune-distributed": trainer.TorchTuneTrainer(
        recipe="lora_finetune_distributed",
        base="llama3_2/1B_lora",
        config={"optimizer.lr": 1e-4},
        lora=trainer.LoraConfig(),
    ),
    "unsloth": trainer.UnslothTrainer(config={"seed": 1}, lora=trainer.LoraConfig(), resources_per_node={"gpu": 1}),
}.items():
    trainer.TrainJob(tool, runtime=tool, trainer=made, output=True)


def shown(progress: trainer.Progress | None) -> str:
    return f"{progress.get('progressPercentage', 0)} % at {progress['lastUpdatedTime']}" if progress else ""


limits: trainer.Timeouts = {"complete": 3600}
pulumi.export("progress", job.progress.apply(shown))
pulumi.export("phase", job.completion.apply(str.lower))
pulumi.export("volume", dataset.volume)
rules = trainer.JobRules(registries=["ghcr.io/acme"], gpus={"": 8, "high": 64}, host_access=False, queue=True)
trainer.JobPolicy("rules", rules=rules, namespaces=["nlp"])
nlp = trainer.TeamNamespace("nlp", share=trainer.Team(gpus=8), groups=["nlp"], quota={"pods": 200})
trainer.TeamNamespace("vision", hardening="restricted", pod_security="baseline")
trainer.GpuQueues(
    "shared", teams=[nlp], gpus={"h100": None, "small": None}, resource={"small": "nvidia.com/mig-1g.10gb"}
)
trainer.ModelVersion(
    "digits",
    job=job,
    registry=trainer.MLflowRegistry(uri="https://mlflow.example.com", token=config.require_secret("token")),
    name="digits",
    aliases=["champion"],
    retain=False,
    opts=pulumi.ResourceOptions(protect=True),
)
registered = trainer.ModelVersion(
    "served", job=job, registry=trainer.KubeflowModelRegistry(server="http://127.0.0.1:8080"), version="1.0"
)
pulumi.export("served", pulumi.Output.concat(registered.version, registered.url, registered.digest))
