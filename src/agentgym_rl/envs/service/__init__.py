"""Environments over HTTP in our own protocol: protocol.py, the server and the client."""
