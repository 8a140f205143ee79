"""ScienceWorld's 30 tasks, on the simulator of the `scienceworld` package."""
