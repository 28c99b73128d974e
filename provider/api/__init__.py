"""Names and types that all layers share. Imports no client library."""
