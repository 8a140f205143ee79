"""The HTTP client of environments: calls (http.py), how they travel (batches.py)."""
