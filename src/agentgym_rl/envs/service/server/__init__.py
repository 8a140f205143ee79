"""The HTTP server of environments: routes (app.py), episodes (sessions.py), processes (pool.py)."""
