"""Shared by all our HTTP services: binding, access and limits."""
