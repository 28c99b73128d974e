"""All rules of this folder, by their codes."""

from __future__ import annotations

from pulumi_trainer.provider.admission.warnings import (
    merging,
    placing,
    pods,
    queues,
    starting,
    training,
)
from pulumi_trainer.provider.admission.warnings.rule import Rule

RULES = (
    Rule("PT101", "a name too long for the Pods of the job", starting.long_names),
    Rule("PT102", "a gang that waits for Pods that wait for it", starting.gang_that_waits_for_itself, cluster=True),
    Rule("PT103", "a replicated job that depends on itself", starting.depends_on_itself),
    Rule("PT104", "a subdomain that two jobs share", starting.shared_subdomain, cluster=True),
    Rule("PT105", "a torch runtime whose command is not torchrun", training.not_torchrun),
    Rule("PT106", "fewer processes than GPUs", training.fewer_processes),
    Rule("PT107", "a patch for a replicated job or container that is not there", merging.unknown_in_patch),
    Rule("PT108", "no trainer section", training.no_trainer),
    Rule("PT109", "a volume merged of two sources", merging.two_sources),
    Rule("PT110", "a number of nodes that validation never saw", training.unseen_nodes),
    Rule("PT111", "GPUs without a toleration for the taints there", placing.untolerated_taints, cluster=True),
    Rule("PT112", "several GPUs and the default /dev/shm", placing.small_shared_memory, cluster=True),
    Rule("PT113", "NCCL on several nodes without a memory limit that fits", placing.memory_limits, cluster=True),
    Rule("PT114", "ports without names", merging.unnamed_ports),
    Rule("PT115", "Flux without numNodes", training.flux_without_nodes),
    Rule("PT116", "LoRA with the nodes of the runtime", training.unseen_lora),
    Rule("PT117", "MPI without an implementation", training.no_mpi),
    Rule("PT118", "resources that nobody reads", training.ignored_resources),
    Rule("PT119", "resources that hide the GPUs of the runtime", training.hidden_gpus),
    Rule("PT120", "the address of a first node that is not there", starting.address_of_nobody),
    Rule("PT121", "a second trainer", training.second_trainer),
    Rule("PT122", "a trainer section that nobody reads", training.nobody_trains),
    Rule("PT123", "an initializer that nobody runs", training.no_initializer),
    Rule("PT124", "several MPI launchers", training.several_launchers),
    Rule("PT125", "no nodes", training.no_nodes),
    Rule("PT126", "more processes than GPUs", training.more_processes),
    Rule("PT127", "several nodes that meet at localhost", training.rendezvous_at_home),
    Rule("PT128", "a volume of one machine for several nodes", placing.one_node_claims, cluster=True),
    Rule("PT129", "a Volcano gang and the default scheduler", starting.volcano_without_scheduler, cluster=True),
    Rule("PT130", "resources that Kubernetes refuses", pods.refused_resources, cluster=True),
    Rule("PT131", "a mount of no volume", pods.mounts_of_nothing),
    Rule(
        "PT132", "a coscheduling gang and the default scheduler", starting.coscheduling_without_scheduler, cluster=True
    ),
    Rule("PT133", "a gang and the scheduler of another kind", starting.foreign_scheduler, cluster=True),
    Rule("PT201", "a LocalQueue without ClusterQueue", queues.of_the_way(queues.leads_nowhere), cluster=True),
    Rule("PT202", "a resource that the queue does not cover", queues.uncovered, cluster=True),
    Rule("PT203", "a job larger than its queue", queues.too_large, cluster=True),
    Rule("PT204", "a flavor that no node matches", queues.of_the_way(queues.unmatched_flavor), cluster=True),
    Rule("PT205", "cohorts in a circle", queues.of_the_way(queues.circles), cluster=True),
    Rule("PT206", "a priority class that is missing", queues.no_priority_class, cluster=True),
    Rule("PT207", "what only a queue reads, without a queue", queues.unread, cluster=True),
    Rule("PT208", "no flavor for the job", queues.no_flavor, cluster=True),
    Rule("PT209", "a queue that is closed to the namespace", queues.closed, cluster=True),
    Rule("PT210", "a queue that names what is not there", queues.of_the_way(queues.dangling), cluster=True),
    Rule("PT211", "a topology without room for the job", queues.no_room, cluster=True),
)
"""A code never changes its meaning, and is not used again."""

QUEUE_RULES: dict[str, queues.QueueRule] = {
    "PT201": queues.leads_nowhere,
    "PT204": queues.unmatched_flavor,
    "PT205": queues.circles,
    "PT210": queues.dangling,
}
"""Those that are about queues, whether there are jobs or not."""
