"""The API server's handling of custom resources: schemas, defaults, validation rules, metadata."""
