"""The options of the environment, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentgym_rl.errors import did_you_mean
from agentgym_rl.retrieval.base import MAX_TOPK
from agentgym_rl.retrieval.open import Backend

EMBEDDED = "embedded"

RewardKind = Literal["em", "f1"]
AfterWrongAnswer = Literal["end", "retry"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What `env.options` of a recipe can say. Raises ValueError for what cannot be."""

    data: str = EMBEDDED
    """"embedded" for the built-in questions, or a folder with the files of the seven data sets."""
    max_per_level: int = 0
    """Keep only the first this many questions of each category and number of hops; 0 keeps all."""
    retriever: str = "bm25"
    """The search engine: "bm25", "dense", "hybrid" or "remote"."""
    index: str = ""
    """A folder that `agentgym index` made; needed by "dense" and "hybrid"."""
    corpus: str = ""
    """A file of passages to search in place of the embedded ones."""
    url: str = ""
    """The server of a "remote" search engine."""
    retriever_timeout_s: float = 30.0
    """Deadline of one search on that server."""
    nprobe: int = 0
    """Lists that a search of an IVF index of vectors looks into; 0 takes every 64th, at least 8."""
    ef_search: int = 0
    """Candidates that a search of an HNSW index of vectors keeps; 0 takes 64."""
    faiss_gpu: bool = False
    """Search the vectors on all GPUs of this machine; needs a FAISS that was built for them."""
    topk: int = 3
    """Passages that a search shows."""
    max_words: int = 300
    """Words that a search shows, over all its passages, titles included."""
    open_words: int = 600
    """Words that opening a passage or a document shows."""
    reward: RewardKind = "em"
    """What an answer earns: exact match, or its F1. Success is an exact match either way."""
    format_reward: float = 0.0
    """Share of the reward for an episode that comes to an answer without a malformed action."""
    gold_reward: float = 0.0
    """Share of the reward for gold passages, each paid when it is first shown."""
    on_wrong_answer: AfterWrongAnswer = "end"
    """"retry" lets the agent guess again, as AgentGym's server does."""
    python: bool = False
    """Whether there is a Python interpreter to use. Needs Linux with Landlock and seccomp."""

    def __post_init__(self) -> None:
        _choose("retriever", self.retriever, get_args(Backend))
        if (self.retriever == "remote") != bool(self.url):
            raise ValueError(
                f'retriever="remote" and the url of its server go together, got '
                f"retriever={self.retriever!r} and url={self.url!r}"
            )
        _choose("reward", self.reward, get_args(RewardKind))
        _choose("on_wrong_answer", self.on_wrong_answer, get_args(AfterWrongAnswer))
        for name in ("topk", "max_words", "open_words"):
            _check_count(name, getattr(self, name))  # one rule for all
        if self.topk > MAX_TOPK:
            raise ValueError(f"topk must be at most {MAX_TOPK}, got {self.topk}")
        for name in ("max_per_level", "nprobe", "ef_search"):
            _check_count(name, getattr(self, name), least=0)
        for name, value in (("python", self.python), ("faiss_gpu", self.faiss_gpu)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, got {value!r}")
        self._check_shares()
        if self.reward == "f1" and self.on_wrong_answer == "retry":
            raise ValueError(
                'reward="f1" pays wrong answers in part, so each must end its episode: '
                'use reward="em" with on_wrong_answer="retry"'
            )
        if self.data != EMBEDDED:
            self._check_data_sets()

    @property
    def only_computes(self) -> bool:
        """Whether an episode runs no code of the agent's, and asks only what is built in."""
        is_built_in = self.data == EMBEDDED and not (self.index or self.corpus or self.url)
        return is_built_in and self.retriever == "bm25" and not self.python

    def _check_shares(self) -> None:
        for name in ("format_reward", "gold_reward"):
            share = getattr(self, name)  # one rule for all
            if not isinstance(share, int | float) or not 0.0 <= share < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {share!r}")
        if self.format_reward + self.gold_reward >= 1.0:
            raise ValueError(
                f"format_reward {self.format_reward:g} and gold_reward {self.gold_reward:g} leave "
                "nothing for the answer: their sum must be below 1"
            )

    def _check_data_sets(self) -> None:
        if self.gold_reward:
            raise ValueError(
                f"gold_reward={self.gold_reward:g} needs gold passages, which only the embedded "
                "questions have"
            )
        if not (self.index or self.corpus or self.url):
            raise ValueError(
                f"the questions in {self.data!r} are about Wikipedia, which the embedded passages "
                "are not: give index=FOLDER, corpus=FILE or url=ADDRESS of a search engine over it"
            )


def _choose(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")


def _check_count(name: str, value: object, *, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
