"""PersistentVolumeClaims in a cluster."""
