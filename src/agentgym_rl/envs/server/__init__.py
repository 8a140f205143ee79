"""The HTTP server of environments: routes (app.py), episodes (sessions.py), process (serve.py)."""
