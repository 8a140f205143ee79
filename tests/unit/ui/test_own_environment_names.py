"""The state of a user's own environment is shown under the name that its episodes bear."""

from __future__ import annotations

from agentgym_rl.ui.environments import Environments

ALLOWED = "examples.tool_environment:Thermostat"


def test_an_allowed_class_is_found_by_the_name_in_its_spec():
    ui = Environments((ALLOWED,))
    assert ui.replay_problem("thermostat") is None and ui.replay_problem(ALLOWED) is None
    assert ui.replay_source("thermostat", {}).env_class.spec.name == "thermostat"
    assert "cannot be recomputed" in str(Environments().replay_problem("thermostat"))
    assert "cannot be recomputed" in str(ui.replay_problem("customer_service"))
