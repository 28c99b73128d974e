"""The values in Kubernetes' documents: quantities, names, YAML, Go types, and values that are not known yet."""
