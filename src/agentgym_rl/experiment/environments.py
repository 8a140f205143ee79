"""The environments of a run, opened: where episodes come from, agents and tasks.

An environment of `[envs]` has a label, and its tasks bear it in the whole run (`Task.env`): in
metrics, reports, stored episodes and rewards. Only the environment itself is told its own name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import RunConfig, naming_env
from agentgym_rl.engines.base import Engine
from agentgym_rl.envs.access.server_process import StartServer, start_here
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.objects import Objects
from agentgym_rl.rollout.chosen_tasks import tasks_of
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.tasks import evaluation_tasks, spread_tasks
from agentgym_rl.training.run_parts import RunEnv
from agentgym_rl.types import Task


@dataclass(frozen=True, slots=True)
class OpenedEnv:
    """An environment of a run while it is open."""

    label: str
    weight: float
    config: RunConfig
    """The run's settings, as they hold for it."""
    objects: Objects
    """What stands for its names."""
    source: EnvSource
    spec: EnvSpec
    agent: Agent
    tasks: Sequence[Task] = ()
    """To train on, as the environment knows them."""
    demo_tasks: Sequence[Task] = ()
    """The same in the order in which its expert is asked: demonstrations show what will be tested,
    in its proportions."""
    eval_tasks: Sequence[Task] = ()
    """To evaluate on, under the label."""
    renderer: ChatRenderer | None = None
    """What writes its prompts; None for the policy's own."""

    def for_policy(self, policy: Policy) -> OpenedEnv:
        """Return it with agent and prompts for this model's chat template."""
        renderer = policy.with_tools(self.agent.tools).renderer
        return replace(self, agent=self.agent.for_model(renderer), renderer=renderer)

    def run_env(self, policy: Policy, engine: Engine, rewards: EpisodeRewards) -> RunEnv:
        """Return it as trainers know it."""
        participants = Participants(
            self.source,
            self.agent,
            TokenPolicy(engine, self.renderer or policy.renderer),
            rewards,
            label=self.label if self.label != self.spec.name else "",
        )
        tasks = under_label(self.tasks, self.label)
        return RunEnv(self.label, self.config, participants, tasks, self.weight)


@asynccontextmanager
async def opened_envs(
    config: RunConfig, objects: Objects, start: StartServer = start_here
) -> AsyncIterator[list[OpenedEnv]]:
    """Open the environments of a run, on servers that `start` starts where it asks for them.

    Raises ConfigError or ValueError for what a user can fix.
    """
    async with AsyncExitStack() as stack:
        opened = list[OpenedEnv]()
        for label, of_env in config.environments.items():
            with naming_env(label, is_several=bool(config.envs)):
                own = objects.of_env(label)
                source = own.source(of_env.env, num_servers=config.cluster.env_servers, start=start)
                await stack.enter_async_context(source)
                spec = await source.spec()
                _check_served(of_env, spec)
                env = OpenedEnv(
                    label if config.envs else spec.name,
                    config.weight(label),
                    of_env,
                    own,
                    source,
                    spec,
                    own.make_agent(of_env.agent, spec),
                )
                opened.append(await _with_tasks(env))
        yield opened


def under_label(tasks: Sequence[Task], label: str) -> list[Task]:
    """Return tasks as the run knows them."""
    return [task if task.env == label else replace(task, env=label) for task in tasks]


def with_shared_tools(policy: Policy, envs: Sequence[OpenedEnv]) -> Policy:
    """Return the policy with prompts that show the tools of its environments, where all have the
    same. What is rendered for one environment has that environment's tools in any case.

    Raises ConfigError where the run needs to render what no environment is known of.
    """
    config, tools = envs[0].config, [env.agent.tools for env in envs]
    if all(each == tools[0] for each in tools):
        return policy.with_tools(tools[0])
    shown = [env.label for env in envs if policy.with_tools(env.agent.tools).renderer.shows_tools]
    data = str(getattr(config.algorithm, "data", ""))  # which some methods have
    given = {
        f"algorithm.data={data}": bool(data),
        f"warm_start.data={config.warm_start.data}": bool(config.warm_start.data),
        "credit.truncated=bootstrap": config.credit.truncated == "bootstrap",
    }
    setting = next((words for words, is_given in given.items() if is_given), "")
    if shown and setting:
        raise ConfigError(
            f"the chat template shows the tools of {', '.join(shown)}, which differ between the "
            f"environments, and the texts of {setting} do not name their environment: set "
            "agent.format=tags, or leave the setting out"
        )
    return policy


def _check_served(config: RunConfig, spec: EnvSpec) -> None:
    env = config.env
    if env.urls and ":" not in env.name and env.name != spec.name:
        raise ConfigError(
            f"the server at {env.urls[0]} serves {spec.name!r}, not {env.name!r}: "
            f"set env.name={spec.name}, or env.url to another server"
        )


async def _with_tasks(env: OpenedEnv) -> OpenedEnv:
    config = env.config

    async def tasks(*, tested: bool) -> list[Task]:
        return await tasks_of(env.source, config.env, env.spec, tested=tested)

    trained = await tasks(tested=False)
    tested = await tasks(tested=True) if config.eval.tasks else []
    evaluated = evaluation_tasks(tested, config.eval.tasks, seed=config.seed)
    return replace(
        env,
        tasks=trained,
        demo_tasks=spread_tasks(trained, tested or trained, seed=config.seed),
        eval_tasks=under_label(evaluated, env.label),
    )
