"""A local model that plays one round at a time, with the prompts and the engine of a rollout.

Imports torch, so it is imported on the first use only, on a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agentgym_rl.agents.agent import Agent, make_agent
from agentgym_rl.config import AgentConfig, NativeEngineConfig
from agentgym_rl.engines.create import create_engine
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import PackedSequences
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.forward import packed_logits
from agentgym_rl.models.loading import load_pretrained
from agentgym_rl.types import SamplingParams
from agentgym_rl.ui.played_episodes import PlayedRound

_MAX_REPLY_TOKENS = 512
_NUM_ALTERNATIVES = 8


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model said, and the action in it; `complaint` is the answer to a reply without."""

    text: str
    action: str | None
    complaint: str


class ModelPlayer:
    """One loaded model."""

    def __init__(self, folder: Path) -> None:
        self._policy = load_pretrained(folder)
        self._engine = create_engine(self._policy, NativeEngineConfig())
        self._num_replies = 0

    def reply(
        self, table: Mapping[str, object], spec: EnvSpec, first: str, past: Sequence[PlayedRound]
    ) -> ModelReply:
        """Return what the model does next, after all that happened in the episode.

        `table` has the settings of the agent, of the run that the model comes from.
        """
        agent = make_agent(AgentConfig.model_validate(dict(table)), spec)
        renderer = self._policy.renderer.with_tools(agent.tools)
        agent = agent.for_model(renderer)
        ids = self._context(agent, renderer, first, past)
        room = self._policy.max_context - len(ids)
        if room <= 0:
            raise ConfigError(
                f"the episode has {len(ids)} tokens, and the model takes {self._policy.max_context}"
            )
        self._num_replies += 1
        session = self._engine.session(session_key("ui", self._num_replies))
        try:
            max_tokens = min(room, _MAX_REPLY_TOKENS)
            completion = asyncio.run(session.generate(ids, SamplingParams(1.0, max_tokens)))
        finally:
            session.close()
        text = renderer.decode_reply(completion.token_ids)
        parsed = agent.parse(text, cut_at=None if completion.is_stopped else max_tokens)
        return ModelReply(text, parsed.action, parsed.complaint)

    def alternatives(self, ids: Sequence[int], place: int) -> dict[str, object]:
        """Return what the model would have said at a place, the likeliest first, at temperature 1.

        Raises ConfigError where these cannot be tokens of the model.
        """
        model, vocabulary = self._policy.model, self._policy.model.config.vocab_size
        before = list(ids[:place])
        are_tokens = all(isinstance(token, int) and 0 <= token < vocabulary for token in ids)
        if len(before) > self._policy.max_context or not are_tokens:
            raise ConfigError(
                f"the model takes {self._policy.max_context} tokens of {vocabulary} kinds, and "
                f"the sample is of another"
            )
        with torch.inference_mode():
            ids_T = torch.tensor(before, device=model.device)
            logits_AV = packed_logits(
                model,
                ids_T,
                torch.arange(len(before), device=model.device),
                torch.tensor([len(before) - 1], device=model.device),
                layout=PackedSequences([len(before)], model.device),
            )
            logprobs_V = torch.log_softmax(logits_AV[0].float(), dim=-1)
        top = torch.topk(logprobs_V, min(_NUM_ALTERNATIVES, vocabulary))
        found = [
            {"id": token, "text": self._policy.tokenizer.decode([token]), "logprob": logprob}
            for token, logprob in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]
        return {
            "alternatives": found,
            "logprob": float(logprobs_V[ids[place]]),
            "rank": int((logprobs_V > logprobs_V[ids[place]]).sum()) + 1,
        }

    def close(self) -> None:
        self._engine.close()

    def _context(
        self, agent: Agent, renderer: ChatRenderer, first: str, past: Sequence[PlayedRound]
    ) -> list[int]:
        ids = renderer.prompt(agent.first_prompt(first))
        for item in past:
            text = item.reply if item.reply is not None else agent.write(item.action or "")
            # A reply of the past is encoded as text: here nothing is learned from it.
            reply_ids = self._policy.tokenizer.encode(text, add_special_tokens=False)
            ids += reply_ids
            ids += renderer.turn(item.observation, reply_ids=reply_ids, is_result=True)
        return ids
