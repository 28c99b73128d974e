"""TODO provider/targets/kubernetes/queues."""
