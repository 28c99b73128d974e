"""TODO provider/targets/kubernetes/jobs."""
