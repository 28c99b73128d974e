"""Pulumi: the dynamic providers, the process that hosts them, values of the engine, and the private parts of the SDK in use."""
