"""Kubeflow Trainer and JobSet: pipeline, admission, catalogue, and a cluster without a server."""
