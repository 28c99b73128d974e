"""Converts documents of Kubernetes to Pulumi programs, and compares what the programs declare with the documents."""
