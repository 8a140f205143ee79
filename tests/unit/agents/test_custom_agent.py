"""The agent of examples/custom_agent.py, and a training run with it."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.agents.agent import make_agent
from agentgym_rl.config import AgentConfig, RunConfig, dump_config
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.experiment import train
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import SegmentKind, Task
from fake_engines import ScriptedEngine, fake_renderer, make_limits
from fakes import CountingEnv

TYPE = "examples.custom_agent:DoubleCheckAgent"
RUN = {
    "env": {"name": "fakes:CountingEnv", "split": "train", "eval_split": "train"},
    "model": {
        "device": "cpu",
        "tiny": {"vocab_size": 320, "hidden_size": 32, "num_layers": 1},
    },
    "agent": {"type": TYPE, "format": "direct", "include_instructions": False},
    "rollout": {"max_tokens_per_round": 8, "max_tokens": 256},
    "rounds": {"type": "fixed", "rounds": 3},
    "algorithm": {"type": "grpo", "group_size": 4},
    "training": {"steps": 2, "tasks_per_step": 2},
    "warm_start": {"steps": 20, "num_demos": 8},
    "eval": {"tasks": 0},
}  # fmt: skip


async def test_it_asks_twice_and_does_the_second():
    source = LocalEnvSource(CountingEnv)
    config = AgentConfig(type=TYPE, format="direct", include_instructions=False)
    engine = ScriptedEngine(["add 1", "add 2", "bad", "add 3"])
    participants = Participants(
        source, make_agent(config, await source.spec()), TokenPolicy(engine, fake_renderer())
    )
    request = EpisodeSpec(Task("counting", "train", 4), 0, (0, "test"))
    episode = await run_episode(request, participants, make_limits())
    assert episode.success and [r.action for r in episode.rounds] == ["add 2", "add 3"]
    (sample,) = episode.samples
    assert list(sample.token_ids) == engine.sessions[0].context
    kinds = [s.kind for s in sample.segments if s.kind.is_reply]
    assert kinds == [SegmentKind.THOUGHT, SegmentKind.ACTION] * 2


async def test_it_trains(tmp_path: Path):
    config = RunConfig.model_validate(RUN)
    run = RunFolder(tmp_path / "run")
    run.create(dump_config(config))
    await train(config, run)
    lines = list(run.read_metrics())
    assert len(lines) == 2 and all(line["rollout/tokens_thought"] > 0 for line in lines)
