"""What is remembered of a cluster: objects that are watched, what it serves, and dry runs."""
