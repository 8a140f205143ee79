"""`agentgym index` and `agentgym serve searchqa-retriever`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym_rl.cli.terminal import announce, suggest
from agentgym_rl.envs.scenarios.searchqa.embedded import embedded_corpus_file
from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.base import MAX_TOPK
from agentgym_rl.retrieval.build import build_index, progress_bar
from agentgym_rl.retrieval.corpus import Corpus, open_corpus
from agentgym_rl.retrieval.open import open_retriever, parse_options

if TYPE_CHECKING:  # only `serve` needs the HTTP stack
    from agentgym_rl.serving.bound import Address

DEFAULT_FACTORY = "Flat"


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """What the user asks `agentgym index` for about vectors."""

    model: str | None
    faiss_file: Path | None
    factory: str
    query_prefix: str
    passage_prefix: str


def index_corpus(corpus_file: Path, folder: Path, vectors: VectorOptions) -> None:
    """Build the index of a corpus, or resume one that was interrupted."""
    _check_vectors(vectors)
    corpus = open_corpus(corpus_file)
    with progress_bar(f"indexing {corpus.name}") as report:
        meta = build_index(corpus, folder, report=report)
    print(f"{meta.num_passages} passages of {corpus.name} in {folder}")
    _add_vectors(corpus, folder, vectors)
    suggest(["agentgym", "serve", "searchqa-retriever", f"index={folder}"])


def _add_vectors(corpus: Corpus, folder: Path, vectors: VectorOptions) -> None:
    if vectors.model is None:
        return
    # Late: FAISS is an optional extra.
    from agentgym_rl.retrieval.dense_build import add_vectors, use_vectors
    from agentgym_rl.retrieval.encoder import EncoderSettings

    settings = EncoderSettings(vectors.model, vectors.query_prefix, vectors.passage_prefix)
    if vectors.faiss_file is not None:
        use_vectors(folder, vectors.faiss_file, settings)
    else:
        with progress_bar(f"encoding {corpus.name}") as report:
            add_vectors(corpus, folder, settings, factory=vectors.factory, report=report)
    print(f"vectors of {vectors.model} in {folder / 'dense'}")


def _check_vectors(vectors: VectorOptions) -> None:
    """Refuse what would fail after the long build of the words."""
    if vectors.model is None:
        if vectors.faiss_file is not None:
            raise ConfigError("--faiss needs --dense MODEL: the encoder that made its vectors")
        if vectors.factory != DEFAULT_FACTORY:
            raise ConfigError(
                f"--factory {vectors.factory} needs --dense MODEL: it chooses the "
                "index of the vectors"
            )
        return
    if vectors.faiss_file is not None and not vectors.faiss_file.is_file():
        raise ConfigError(f"--faiss: there is no file {vectors.faiss_file}")
    # Late: transformers is heavy, and only vectors need it.
    from agentgym_rl.retrieval.encoder import check_encoder

    check_encoder(vectors.model)


def serve_retriever(address: Address, options: Mapping[str, object]) -> None:
    """Serve `/retrieve` until interrupted. Options are those of `RetrieverOptions`, and `topk`."""
    # Only this needs the HTTP stack.
    from agentgym_rl.retrieval.service import DEFAULT_TOPK, RetrieverApp
    from agentgym_rl.serving.bound import BoundServer

    given = dict(options)
    topk = given.pop("topk", DEFAULT_TOPK)
    if not isinstance(topk, int) or isinstance(topk, bool) or not 1 <= topk <= MAX_TOPK:
        raise ConfigError(f"topk must be a whole number from 1 to {MAX_TOPK}, got {topk!r}")
    retriever = open_retriever(parse_options(given), own_corpus=embedded_corpus_file)

    app = RetrieverApp(retriever, topk=topk, token=address.token)
    ready = partial(announce, f"searchqa-retriever with {len(retriever)} passages", address)
    BoundServer(app, address, max_message_bytes=None, on_ready=ready).run()
