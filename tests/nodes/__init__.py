"""On real nodes: real pods, networks, volumes. Linux and root."""
