"""TODO provider/kube/schema."""
