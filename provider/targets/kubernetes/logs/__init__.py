"""Logs of Pods, followed across restarts."""
