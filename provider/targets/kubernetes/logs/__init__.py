"""TODO provider/targets/kubernetes/logs."""
