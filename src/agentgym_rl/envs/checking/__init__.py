"""The contract of environments as laws, and the checker that tries an environment on them."""
