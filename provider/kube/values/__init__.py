"""TODO provider/kube/values."""
