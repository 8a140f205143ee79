"""Opens a search engine by its options; an index that is missing is built at first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter, ValidationError

from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.retrieval.base import Retriever
from agentgym_rl.retrieval.bm25 import Bm25Retriever
from agentgym_rl.retrieval.build import build_index, progress_bar
from agentgym_rl.retrieval.cache import CachedRetriever
from agentgym_rl.retrieval.corpus import Corpus, open_corpus
from agentgym_rl.retrieval.folder import FORMAT, IndexFolder
from agentgym_rl.retrieval.hybrid import HybridRetriever
from agentgym_rl.retrieval.remote import RemoteRetriever

Backend = Literal["bm25", "dense", "hybrid", "remote"]
_BUILD_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class RetrieverOptions:
    """Which search engine to use. Raises ConfigError for options that contradict each other.

    Without `index`, `corpus` and `url` it is BM25 over the caller's own corpus.
    """

    backend: Backend = "bm25"
    index: str | None = None
    """A folder that `agentgym index` made."""
    corpus: str | None = None
    """A file of passages (see corpus.py), indexed (BM25) in the cache folder at first use."""
    url: str | None = None
    """The server of the back end "remote"."""
    token: str | None = None
    """Bearer token of that server."""
    timeout_s: float = 30.0
    """Deadline of a call to that server, its retries included."""
    nprobe: int = 0
    """Lists that a search of an IVF index reads; 0 reads every 64th, at least 8."""
    ef_search: int = 0
    """Candidates that a search of an HNSW index keeps; 0 keeps 64."""
    faiss_gpu: bool = False
    """Search the vectors on all GPUs of this machine; needs a FAISS built for GPUs."""

    def __post_init__(self) -> None:
        known = get_args(Backend)
        if self.backend not in known:
            hint = did_you_mean(self.backend, known)
            raise ConfigError(f"no back end {self.backend!r}{hint}; available: {', '.join(known)}")
        if (self.backend == "remote") != (self.url is not None):
            raise ConfigError('backend="remote" and url go together: give both or neither')
        if sum(place is not None for place in (self.index, self.corpus, self.url)) > 1:
            raise ConfigError("index, corpus and url exclude each other: give one of them")
        if self.backend in ("dense", "hybrid") and self.index is None:
            raise ConfigError(
                f"backend={self.backend!r} needs an index with vectors: build it with "
                "`agentgym index CORPUS -o FOLDER --dense MODEL` and give index=FOLDER"
            )
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s must be above 0, got {self.timeout_s}")
        self._check_vector_search()

    def _check_vector_search(self) -> None:
        wishes = {"nprobe": self.nprobe, "ef_search": self.ef_search, "faiss_gpu": self.faiss_gpu}
        for name, value in wishes.items():
            if value < 0:
                raise ConfigError(f"{name} must be 0 or more, got {value}")
            if value and self.backend not in ("dense", "hybrid"):
                raise ConfigError(
                    f"{name}={value} is about vectors, and backend={self.backend!r} has none: "
                    'use backend="dense" or "hybrid"'
                )


def parse_options(given: Mapping[str, object]) -> RetrieverOptions:
    """Return the options that a user wrote. Raises ConfigError for a wrong or unknown one."""
    known = [field.name for field in fields(RetrieverOptions)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"no option {name!r}{hint}; available: {', '.join(known)}")
    try:
        return TypeAdapter(RetrieverOptions).validate_python(dict(given))
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"option {name}={wrong['input']!r}: {wrong['msg']}") from None


def open_retriever(
    spec: RetrieverOptions, *, own_corpus: Callable[[], Path] | None = None
) -> CachedRetriever:
    """Return the search engine, which remembers its last searches.

    `own_corpus` returns the file to search if the options name nothing. Raises EnvError or
    ValueError, with the remedy, if it cannot be opened.
    """
    if spec.url is not None:
        remote = RemoteRetriever(spec.url, token=spec.token, timeout_s=spec.timeout_s)
        return CachedRetriever(remote)
    if spec.index is not None:
        folder = IndexFolder(Path(spec.index).expanduser())
        if folder.read_meta() is None:
            raise ValueError(
                f"there is no finished index in {folder.root}: `agentgym index CORPUS -o "
                f"{folder.root}` builds one, or resumes an interrupted build"
            )
    else:
        corpus = open_corpus(_corpus_file(spec, own_corpus))
        folder = _folder_in_cache(corpus)
        if folder.read_meta() is None:
            with progress_bar(f"indexing {corpus.name} (once)") as report:
                build_index(corpus, folder.root, wait_s=_BUILD_WAIT_S, report=report)
    return CachedRetriever(_local(spec, folder))


def has_index_in_cache(corpus: Corpus) -> bool:
    """Return whether the cache folder has the finished index of a corpus."""
    return _folder_in_cache(corpus).read_meta() is not None


def _folder_in_cache(corpus: Corpus) -> IndexFolder:
    """Return the index below AGENTGYM_CACHE, or below the user's cache folder."""
    root = os.environ.get("AGENTGYM_CACHE")
    if root and Path(root).exists() and not Path(root).is_dir():
        raise ConfigError(f"AGENTGYM_CACHE={root} is not a folder: name one, or unset it")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(root) if root else Path(base) / "agentgym-rl"
    return IndexFolder(cache / "searchqa" / f"index-{corpus.fingerprint}-v{FORMAT}")


def _corpus_file(spec: RetrieverOptions, own_corpus: Callable[[], Path] | None) -> Path:
    if spec.corpus is not None:
        return Path(spec.corpus).expanduser()
    if own_corpus is None:
        raise ValueError("nothing to search: give index, corpus or url")
    return own_corpus()


def _local(spec: RetrieverOptions, folder: IndexFolder) -> Retriever:
    words = Bm25Retriever(folder.words)
    if spec.backend == "bm25":
        return words
    # Late: FAISS is an optional extra.
    from agentgym_rl.retrieval.dense import DenseRetriever

    dense = DenseRetriever(
        folder.dense, words, nprobe=spec.nprobe, ef_search=spec.ef_search, on_gpu=spec.faiss_gpu
    )
    return dense if spec.backend == "dense" else HybridRetriever((words, dense))
