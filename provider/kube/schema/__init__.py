"""What an API server does with objects of custom resources: schemas, defaults, validation rules, metadata."""
