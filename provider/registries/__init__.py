"""Model registries, each through its own client, which is an extra of this package and loaded on use."""
