"""TODO provider/targets/kubernetes/storage."""
