"""Seeing a running engine: logs, the status page, and the way in for tools."""
