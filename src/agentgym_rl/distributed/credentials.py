"""The token of a Ray cluster that a run starts for itself. Imports no Ray, which reads it once."""

from __future__ import annotations

import os
import secrets
import sys

from agentgym_rl.config import ClusterConfig


def cluster_address(config: ClusterConfig) -> str:
    """Return the address of the cluster to join; empty for one that begins with the run."""
    return config.address or os.environ.get("RAY_ADDRESS", "")


def choose_token(config: ClusterConfig) -> None:
    """Have a cluster that begins with the run ask for a token that only its processes know.

    Ray would write one into the home directory, for all to read.
    """
    if not cluster_address(config) and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
