"""Templates of tasks, one file per site and kind (contract: templates.py)."""
