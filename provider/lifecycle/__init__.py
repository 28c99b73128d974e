"""What happens to a job over time: identity, changes, and the calls of a provider on plain data.

`dynamic` calls `calls`; nothing here knows Pulumi or a client of a target.
"""
