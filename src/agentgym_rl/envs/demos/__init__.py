"""Expert demonstrations: an environment's own expert plays its tasks, here or in processes."""
