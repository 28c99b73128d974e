"""TODO provider/kube."""
