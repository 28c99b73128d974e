"""TODO provider/kube/client."""
