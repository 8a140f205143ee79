"""TextCraft: an environment on the crafting recipes of Minecraft. See `env.py`."""
