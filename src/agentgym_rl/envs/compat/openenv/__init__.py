"""OpenEnv's wire protocol, on both sides.

What travels is in protocol.py. Server: routes are in routes.py, one socket's session in session.py,
the task API in tasks.py. Client: episodes are in source.py, what a foreign server leaves open in
mapping.py, its tasks in profile.py, sockets and deadlines in transport.py.
"""
