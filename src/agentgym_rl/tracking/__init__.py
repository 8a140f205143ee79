"""Trackers: metrics, episodes and models of a run, sent where other programs show them."""
