"""Conversations and preferences to learn from, read and checked."""
