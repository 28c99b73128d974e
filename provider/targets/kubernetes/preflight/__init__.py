"""TODO provider/targets/kubernetes/preflight."""
