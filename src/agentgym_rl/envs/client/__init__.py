"""Clients of environments: one interface, in process (local.py) or over HTTP (http.py)."""
