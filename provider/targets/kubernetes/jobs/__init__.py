"""The life of a job in a cluster: its record, its objects, adoption, drift and deletion."""
