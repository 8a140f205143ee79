"""Any endpoint that speaks OpenAI's chat protocol."""
