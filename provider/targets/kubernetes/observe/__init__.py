"""TODO provider/targets/kubernetes/observe."""
