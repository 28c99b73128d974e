"""Kubernetes in general: its API server, its schemas and its values."""
