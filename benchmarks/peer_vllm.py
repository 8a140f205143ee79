"""vLLM in this process, as a `Generator` of step_episodes.py.

Requests carry no seed, because vLLM samples those with seeds one by one in Python; what it caches
is kept between rounds, and replies come without text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from step_episodes import PeerEpisode, Reply


class VllmInProcess:
    """Steps vLLM's engine; replies are whole in any order."""

    def __init__(self, llm: Any, stop_token_ids: Sequence[int]) -> None:  # Any: vLLM's own
        self._llm, self._stop_token_ids = llm, list(stop_token_ids)
        self._waiting: dict[str, PeerEpisode] = {}

    def ask(self, episodes: Sequence[PeerEpisode]) -> None:
        prompts = [{"prompt_token_ids": episode.ids} for episode in episodes]
        params = [sampling(episode.room, self._stop_token_ids) for episode in episodes]
        names = self._llm.enqueue(prompts, params, use_tqdm=False)
        # vLLM returns its own name ("17-9f3a...") and gives the outer one ("17") with outputs.
        self._waiting |= {
            name.split("-")[0]: episode for name, episode in zip(names, episodes, strict=True)
        }

    def replies(self) -> list[tuple[PeerEpisode, Reply]]:
        return [
            (self._waiting.pop(output.request_id.split("-")[0]), _reply(output))
            for output in self._llm.llm_engine.step()
            if output.finished
        ]


def sampling(max_tokens: int, stop_token_ids: Sequence[int]) -> object:
    """Return vLLM's parameters of a reply with the log-probabilities of its tokens."""
    from vllm import SamplingParams  # in the peer's environment only

    return SamplingParams(
        temperature=1.0,
        max_tokens=max_tokens,
        logprobs=0,
        stop_token_ids=list(stop_token_ids),
        ignore_eos=True,
        detokenize=False,
    )


def _reply(output: Any) -> Reply:  # Any: vLLM's own
    done = output.outputs[0]
    ids = list(done.token_ids)
    return Reply(ids, [at[id_].logprob for at, id_ in zip(done.logprobs, ids, strict=True)])
