"""Dense retrieval: vectors of a sentence encoder, searched with FAISS.

Works over an index that `dense_build.py` made, and over a FAISS file made elsewhere (Search-R1's
`e5_Flat.index`) beside the corpus it was made from: vector n is the passage at row n.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import faiss

from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.bm25 import Bm25Retriever, clean
from agentgym_rl.retrieval.encoder import Encoder, EncoderSettings
from agentgym_rl.retrieval.folder import write_json
from agentgym_rl.retrieval.passages import Passage
from agentgym_rl.retrieval.vector_search import VectorSearch, prepare


@dataclass(frozen=True, slots=True)
class DenseMeta:
    """Which vectors an index has. `faiss` is a file in the folder, or the path of one elsewhere."""

    faiss: str
    encoder: EncoderSettings


class DenseRetriever(Retriever):
    """Searches the vectors in `folder`; the passages come from the index of words beside them.

    Raises EnvError where the vectors are missing, cannot be read or are of another corpus.
    """

    def __init__(self, folder: Path, passages: Bm25Retriever, how: VectorSearch) -> None:
        meta = read_meta(folder)
        self._passages = passages
        self._vectors = prepare(open_faiss(folder / meta.faiss), how)
        # The memory that FAISS works with on a GPU serves one search at a time.
        self._turns = threading.Lock() if how.on_gpu else nullcontext()
        if self._vectors.ntotal != len(passages):
            raise EnvError(
                f"{meta.faiss} has {self._vectors.ntotal} vectors and the corpus {len(passages)} "
                "passages: they do not belong together"
            )
        self._encoder = Encoder(meta.encoder)
        if self._vectors.d != self._encoder.num_dimensions:
            raise EnvError(
                f"{meta.faiss} has vectors of {self._vectors.d} numbers, the encoder "
                f"{meta.encoder.model!r} makes {self._encoder.num_dimensions}: give its own encoder"
            )

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        num_wanted = min(topk, len(self))
        filled = [place for place, query in enumerate(queries) if query.strip()]
        results: list[list[Hit]] = [[] for _ in queries]
        if not filled or num_wanted < 1:
            return results
        vectors_QD = self._encoder.encode_queries([clean(queries[place]) for place in filled])
        with self._turns:
            scores_QK, rows_QK = self._vectors.search(vectors_QD, num_wanted)
        if self._vectors.metric_type == faiss.METRIC_L2:
            scores_QK = 1 - scores_QK / 2  # the cosine, as vectors have length 1
        for place, scores_K, rows_K in zip(filled, scores_QK, rows_QK, strict=True):
            results[place] = [
                Hit(self._passages.at_row(int(row)), float(score))
                for score, row in zip(scores_K, rows_K, strict=True)
                if row >= 0  # FAISS fills up with -1 where it finds fewer
            ]
        return results

    def get(self, passage_id: str) -> Passage | None:
        return self._passages.get(passage_id)

    def __len__(self) -> int:
        return len(self._passages)

    def close(self) -> None:
        self._passages.close()


def read_meta(folder: Path) -> DenseMeta:
    """Return which vectors a folder has. Raises EnvError where it has none, or damaged ones."""
    try:
        fields = json.loads((folder / "dense.json").read_text(encoding="utf-8"))
        return DenseMeta(faiss=fields["faiss"], encoder=EncoderSettings(**fields["encoder"]))
    except FileNotFoundError:
        raise EnvError(
            f"there are no vectors in {folder}: build them with `agentgym index ... --dense MODEL`"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise EnvError(
            f"{folder / 'dense.json'} is damaged ({error}): delete {folder} and build the vectors "
            "again with `agentgym index ... --dense MODEL`"
        ) from error


def write_meta(folder: Path, meta: DenseMeta) -> None:
    """Declare the vectors of a folder whole."""
    write_json(folder / "dense.json", asdict(meta))


def open_faiss(path: Path) -> faiss.Index:
    """Open a FAISS index, mapped from disk where its kind allows that. Raises EnvError."""
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise EnvError(f"cannot read the FAISS index {path}: {error}") from error
