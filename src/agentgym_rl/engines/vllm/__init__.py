"""Generation by a vLLM server: one that is started here, or one that a user runs."""
