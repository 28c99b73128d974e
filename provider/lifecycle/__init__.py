"""The lifecycle of a job on plain data, without Pulumi or a client: identity, changes, create/read/update/delete, diagnosis."""
