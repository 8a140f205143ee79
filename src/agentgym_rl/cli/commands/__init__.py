"""The commands: each parses its arguments and then imports what does the work."""
