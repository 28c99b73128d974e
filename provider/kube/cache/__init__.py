"""TODO provider/kube/cache."""
