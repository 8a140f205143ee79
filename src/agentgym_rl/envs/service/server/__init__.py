"""The HTTP server: routes (app.py), episodes (session_store.py), processes (pool.py)."""
