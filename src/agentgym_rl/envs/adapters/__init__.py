"""Other libraries' environments as ours: a function each that returns a subclass of Environment."""
