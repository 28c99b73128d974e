"""What jobs are doing: lists, watches, and the documents that say why."""
