"""The genuine WebArena, in its original and its verified version."""
