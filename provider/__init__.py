"""Everything below the components: documents, pipeline, admission, lifecycle and targets. Only `engine` imports Pulumi."""
