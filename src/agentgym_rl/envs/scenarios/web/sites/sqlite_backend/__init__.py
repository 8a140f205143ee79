"""A database backend of Django whose connection is the current episode's (base.py)."""
