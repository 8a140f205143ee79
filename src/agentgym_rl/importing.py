"""The name under which another process finds a class or a function: "module:Class"."""

from __future__ import annotations

import importlib


def importable_name(thing: object) -> str:
    """Return "module:Class" where an import finds this very object; else an empty text.

    Nothing in a script that runs or in a notebook has such a name, nor has what a function made.
    """
    module = getattr(thing, "__module__", None)  # an object of the user's own
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return ""
    return f"{module}:{name}" if found is thing else ""
