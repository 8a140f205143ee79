"""Blocking calls of environments, on threads and with deadlines."""
