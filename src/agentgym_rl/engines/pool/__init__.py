"""Engines in processes of their own, as one engine."""
