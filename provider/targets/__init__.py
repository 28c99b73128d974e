"""The targets that run jobs, and what is the same for both: connections, queries, generated keys."""
