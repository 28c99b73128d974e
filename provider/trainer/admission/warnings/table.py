"""All rules of this package by their codes."""

from __future__ import annotations

from functools import partial

from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, SECRET
from pulumi_trainer.provider.kueue.prices import invalid_amounts
from pulumi_trainer.provider.trainer.admission.warnings import (
    budgets,
    devices,
    endings,
    given_twice,
    gpu_memory,
    interruptions,
    launchers,
    limits,
    merging,
    networks,
    nodes,
    placing,
    pods,
    queue_settings,
    queues,
    quota_changes,
    references,
    settings,
    starting,
    storage,
    training,
)
from pulumi_trainer.provider.trainer.admission.warnings.rule import Rule

CLOSED_NETWORK = "PT308"


def _of_queue(code: str, title: str, find: queues.QueueRule) -> Rule:
    return Rule(code, title, queues.for_queue_of_job(find), cluster=True, of_queue=find)


RULES = (
    Rule("PT101", "a name too long for the Pods of the job", starting.long_names),
    Rule("PT102", "a gang that waits for Pods that it blocks", starting.gang_deadlock, cluster=True),
    Rule("PT103", "a replicated job that depends on itself", starting.depends_on_itself),
    Rule("PT104", "a subdomain that two jobs share", starting.shared_subdomain, cluster=True),
    Rule("PT105", "a torch runtime whose launcher ignores PET_*", launchers.not_torchrun),
    Rule("PT106", "fewer processes than GPUs", training.fewer_processes),
    Rule("PT107", "a patch for a replicated job or container that does not exist", merging.unknown_in_patch),
    Rule("PT108", "no trainer section", training.no_trainer),
    Rule("PT109", "a volume with two sources after merging", merging.two_sources, refused=True),
    Rule("PT110", "a number of nodes that the webhook does not check", training.unvalidated_nodes),
    Rule("PT111", "GPUs without a toleration for the taints of their nodes", placing.untolerated_taints, cluster=True),
    Rule("PT112", "several GPUs with the default /dev/shm", placing.small_shared_memory, cluster=True),
    Rule("PT113", "NCCL on several nodes without a sufficient memory limit", placing.memory_limits, cluster=True),
    Rule("PT114", "ports without names", merging.unnamed_ports),
    Rule("PT115", "Flux without numNodes", training.flux_without_nodes),
    Rule("PT116", "LoRA on several nodes of the runtime", training.unvalidated_lora),
    Rule("PT117", "MPI without mpiImplementation", training.no_mpi),
    Rule("PT118", "resourcesPerNode that Trainer ignores", training.ignored_resources),
    Rule("PT119", "resources that hide the GPUs of the runtime", training.hidden_gpus),
    Rule("PT120", "a first node without its expected address", starting.address_without_pod),
    Rule("PT121", "a second trainer", training.second_trainer),
    Rule("PT122", "a trainer section without effect", training.no_trainer_step),
    Rule("PT123", "an initializer without effect", training.no_initializer),
    Rule("PT124", "several MPI launchers", training.several_launchers),
    Rule("PT125", "no nodes", training.no_nodes),
    Rule("PT126", "more processes than GPUs", training.more_processes),
    Rule("PT127", "several nodes that meet at localhost", training.local_rendezvous),
    Rule("PT128", "a single-node volume for several nodes", placing.one_node_claims, cluster=True),
    Rule("PT129", "a Volcano gang with the default scheduler", starting.volcano_without_scheduler, cluster=True),
    Rule("PT130", "resources that Kubernetes refuses", pods.refused_resources, cluster=True, refused=True),
    Rule("PT131", "a mount without its volume", pods.mounts_without_volume, refused=True),
    Rule(
        "PT132", "a coscheduling gang with the default scheduler", starting.coscheduling_without_scheduler, cluster=True
    ),
    Rule("PT133", "a gang with the scheduler of another kind", starting.foreign_scheduler, cluster=True),
    Rule(
        "PT134", "checkpoints, but disruptions that count as failures", interruptions.counted_disruptions, cluster=True
    ),
    Rule("PT135", "an interruption that counts as success", interruptions.unfinished_success),
    Rule("PT136", "torchrun kills its workers before the Pod ends", interruptions.torchrun_kills),
    Rule("PT137", "a grace period shorter than the program expects", interruptions.short_grace),
    Rule("PT138", "a TTL that starts a failed job again", interruptions.repeated_failure, cluster=True),
    Rule("PT139", "a node that restarts alone", interruptions.restarts_alone),
    Rule("PT140", "a deadline that overflows", interruptions.overflowing_deadline, cluster=True),
    Rule("PT141", "an object that Kubernetes refuses later", pods.refused_objects, cluster=True, refused=True),
    Rule("PT142", "a second container that keeps its Pod running", endings.second_containers),
    Rule("PT143", "an init container that does not end", endings.endless_init_containers),
    Rule("PT144", "a step that does not end, and that the job waits for", endings.endless_steps),
    Rule("PT145", "data of an initializer that ends with its Pod", storage.passing_data, cluster=True),
    Rule("PT146", "checkpoints that a restart loses", storage.lost_checkpoints, cluster=True, is_note=True),
    Rule("PT147", "claimed GPUs without processes", devices.uncounted_devices),
    Rule("PT148", "claims that resourcesPerNode drops", devices.dropped_claims, refused_in="jobset"),
    Rule("PT149", "a process for each CPU", devices.processes_for_cpus, is_note=True),
    Rule("PT151", "Open MPI 5 without its hostfile", training.no_hosts_for_open_mpi_5, cluster=True),
    Rule("PT152", "a TTL that runs a finished step again", interruptions.repeated_step, cluster=True),
    Rule("PT153", "a deadline that starts Pods again", interruptions.replaced_pods),
    Rule("PT154", "a command that replaces those of other steps", settings.replaced_commands),
    Rule("PT155", "a setting that other nodes do not get", settings.settings_of_others, cluster=True),
    Rule("PT156", "no process on a node", settings.no_processes),
    Rule("PT161", "a setting with two values", given_twice.two_values),
    Rule("PT162", "a variable that overrides the runtime's value", given_twice.overridden_variables, is_note=True),
    Rule("PT163", "completions that Trainer replaces", given_twice.replaced_completions),
    Rule("PT164", "a volume mounted at the root folder", pods.mounts_at_root, cluster=True),
    Rule("PT165", "a memory limit without its unit", placing.tiny_memory, cluster=True),
    Rule("PT166", "a missing Secret", partial(references.missing_objects, kind=SECRET), cluster=True),
    Rule("PT167", "a missing ConfigMap", partial(references.missing_objects, kind=CONFIG_MAP), cluster=True),
    Rule("PT168", "a missing claim", partial(references.missing_objects, kind=CLAIM), cluster=True),
    Rule(
        "PT169", "a missing pull secret", partial(references.missing_objects, kind=SECRET, needed=False), cluster=True
    ),
    Rule("PT170", "nodes with GPUs that nobody requests", placing.unrequested_gpus, cluster=True),
    Rule("PT171", "a storage URI that no initializer serves", storage.unserved_uris, cluster=True),
    Rule("PT172", "a part of a storage URI that no initializer serves", storage.unsupported_parts, cluster=True),
    Rule("PT173", "a claim that no container uses", devices.unused_claims, cluster=True),
    Rule("PT174", "a ResourceClaim of several Pods", devices.shared_claims, cluster=True),
    Rule("PT175", "a missing ResourceClaim or ResourceClaimTemplate", references.missing_device_claims, cluster=True),
    _of_queue("PT201", "a LocalQueue without ClusterQueue", queues.missing_cluster_queue),
    Rule("PT202", "a resource that the queue does not cover", queues.resource_without_quota, cluster=True),
    Rule("PT203", "a job larger than its queue", queues.too_large, cluster=True),
    _of_queue("PT204", "a flavor that no node matches", queues.unmatched_flavor),
    _of_queue("PT205", "cohorts in a circle", queues.cohort_cycle),
    Rule("PT206", "a missing priority class", queues.no_priority_class, cluster=True),
    Rule("PT207", "queue settings without a queue", queues.unused_queue_fields, cluster=True),
    Rule("PT208", "no flavor for the job", queues.no_flavor, cluster=True),
    Rule("PT209", "a queue that does not admit the namespace", queues.namespace_not_selected, cluster=True),
    _of_queue("PT210", "a queue with missing references", queues.missing_references),
    Rule("PT211", "a topology without room for the job", queues.no_topology_domain, cluster=True),
    Rule("PT212", "a missing LocalQueue", queues.missing_local_queue, cluster=True),
    _of_queue("PT213", "a stopped queue", queues.stopped_queue),
    _of_queue("PT214", "a quota far beyond the nodes", queues.quota_beyond_nodes),
    _of_queue(quota_changes.AFFECTS, "a change of quota that affects jobs", quota_changes.affected_jobs),
    Rule("PT216", "a renamed queue", queues.renamed_queue, cluster=True),
    Rule("PT217", "a preemption that loses everything", interruptions.unsaved_work, cluster=True),
    Rule("PT218", "a job that no Workload can describe", queues.refused_workload, cluster=True, refused=True),
    Rule("PT219", "more steps than older versions of Kueue admit", queues.many_steps, cluster=True),
    Rule("PT220", "claims that Kueue does not support", devices.unsupported_claims, cluster=True),
    Rule("PT221", "a class of devices without quota", devices.unmapped_devices, cluster=True),
    Rule("PT222", "a queue that starts a suspended job", queue_settings.suspended_in_queue, cluster=True),
    Rule("PT223", "a setting of a queue where nobody reads it", queue_settings.misplaced_settings, cluster=True),
    Rule("PT224", "two topologies for the same Pods", queue_settings.exclusive_topology, cluster=True),
    Rule("PT225", "Pods that are not ready in time", queue_settings.pods_never_ready, cluster=True),
    Rule("PT226", "a kind of job that Kueue does not manage", queue_settings.unmanaged_kind, cluster=True),
    Rule("PT227", "a job without a queue that Kueue holds", queue_settings.held_without_queue, cluster=True),
    Rule(
        "PT228", "a queue in a namespace that Kueue does not manage", queue_settings.unmanaged_namespace, cluster=True
    ),
    Rule("PT229", "a label that Kueue does not know", queue_settings.unknown_settings, cluster=True),
    Rule(budgets.BEYOND, "more than the budget of a month", budgets.beyond_budget, cluster=True),
    _of_queue(budgets.WITHOUT_EFFECT, "a price or a budget without effect", invalid_amounts),
    Rule("PT301", "more than the namespace's ResourceQuota", limits.over_resource_quota, cluster=True),
    Rule("PT302", "no node that fits the Pods", nodes.no_node, cluster=True),
    Rule("PT303", "tolerations that those of the flavor replace", nodes.replaced_tolerations, cluster=True),
    Rule("PT304", "RDMA without the right to lock memory", nodes.unlocked_memory, cluster=True, is_note=True),
    Rule("PT305", "nodes that Karpenter may replace", nodes.consolidated_nodes, cluster=True, is_note=True),
    Rule("PT307", "a proxy of a service mesh in the job's Pods", networks.injected_proxies, cluster=True),
    Rule(CLOSED_NETWORK, "a network that is closed for the job", networks.closed_networks, cluster=True),
    Rule("PT309", "addresses that wait for a probe", networks.unpublished_addresses, cluster=True),
    Rule("PT310", "nodes that do not ask the cluster's DNS", networks.unknown_names, cluster=True),
    Rule("PT311", "training that begins before its data is there", storage.early_starts, cluster=True),
    Rule("PT312", "GPUs with too little memory for the training", gpu_memory.too_little_memory, cluster=True),
    Rule(
        "PT313",
        "a training that may need more memory than its GPUs have",
        gpu_memory.uncertain_memory,
        cluster=True,
        is_note=True,
    ),
)
"""A code never changes its meaning, and is not reused."""

NEVER_START = frozenset(
    f"PT{number}" for number in (*range(201, 207), *range(208, 214), 218, 220, 221, 227, 228, 301, 302)
)
"""Rules that find a job that never starts while queues, quotas and nodes stay as they are."""
