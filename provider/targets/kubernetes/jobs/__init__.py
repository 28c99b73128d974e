"""Owns the objects of a job in a cluster: its record, creation, adoption, drift and deletion."""
