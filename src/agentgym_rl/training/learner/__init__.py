"""The learner: scores samples and updates weights."""
