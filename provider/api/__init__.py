"""Typed documents and the words that every layer shares. Imports nothing of the project and no client library."""
