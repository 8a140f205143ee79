"""How others reach environments: sources for clients (sources.py), servers (serve.py)."""
