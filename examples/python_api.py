"""The Python API from `make` to `evaluate`, as cells: a notebook in a script.

Editors run the parts between `# %%` one by one; `python examples/python_api.py` runs all of them.
"""

# %% An environment is one object, one episode at a time. Nothing here loads torch.
from __future__ import annotations

import agentgym_rl as ag

env = ag.make("babyai")
task = env.tasks("test")[0]
print(env.reset(task))
print(env.step(env.expert_action() or "look").observation)

# %% A recipe and what differs from it. `train` blocks, and returns the run when it is done.
SETTINGS: dict[str, object] = {
    "env.levels": ["GoToRedBallNoDists"],
    "model.tiny": {"vocab_size": 320, "hidden_size": 32, "num_layers": 1},
    "warm_start": {"steps": 12, "num_demos": 48},
    "training": {"steps": 3, "tasks_per_step": 2},
    "eval": {"every": 0, "tasks": 4},
}
run = ag.train("quickstart", SETTINGS)

# %% Metrics are a table: a row per step, a column per name.
print(run.metrics)
print(run.metrics["rollout/success_rate"])
print(run.folder)

# %% Episodes, with what was said, what was done, and the exact tokens.
episodes = ag.rollout(run.model, tasks=2, max_rounds=4)
for episode in episodes:
    print(episode.task.id, episode.stop_reason, episode.reward)
    for round_ in episode.rounds:
        print("  ", round_.action, "->", round_.observation.splitlines()[0])
    sample = episode.samples[0]
    print("  ", len(sample.token_ids), "tokens,", sample.num_action_tokens, "of them sampled")

# %% How good is it, with an interval, per category, and with several samples per task?
report = ag.evaluate(run.model, tasks=5, k=2)
print(report.to_markdown())
print(report.overall.success_rate, report.overall.success_low, report.overall.success_high)

# %% The model is a directory that transformers loads, and a model to train on from.
print(run.model.path)
again = ag.train("quickstart", {**SETTINGS, "warm_start.steps": 0}, model=run.model)
print(again.metrics["train/loss"])
