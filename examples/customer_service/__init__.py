"""Customer service over a small database: a worked example of an environment with tools.

agentgym check examples.customer_service:CustomerService
agentgym play examples.customer_service:CustomerService
agentgym train examples/customer_service/recipe.toml
"""

from __future__ import annotations

from examples.customer_service.env import CustomerService

__all__ = ["CustomerService"]
