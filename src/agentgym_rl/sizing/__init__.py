"""How much memory a recipe takes on a machine: estimates without torch, and settings that fit."""
