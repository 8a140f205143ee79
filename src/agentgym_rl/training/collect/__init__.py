"""The groups that a training step learns from."""
