"""Dense retrieval: vectors of a sentence encoder, searched with FAISS.

The vectors come from `dense_build.py`, or from a FAISS file made elsewhere (Search-R1's
`e5_Flat.index`) over the same corpus: vector n is the passage at row n.

An inverted file (IVF) reads `nprobe` of its lists and a graph (HNSW) keeps `ef_search` candidates:
more of either finds more of the true neighbours and takes longer. The defaults of FAISS, one list
and 16 candidates, miss too many.
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

_LEAST_LISTS = 8
_LISTS_PER_PROBE = 64
_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class DenseMeta:
    """The vectors of an index. `faiss` is a file in the folder, or a path elsewhere."""

    faiss: str
    encoder: EncoderSettings


class DenseRetriever(Retriever):
    """Searches the vectors in `folder`; the passages come from the index of words beside it.

    `nprobe`, `ef_search` and `on_gpu` are those of `prepare`. Raises EnvError if the vectors are
    missing, cannot be read or belong to another corpus.
    """

    def __init__(
        self,
        folder: Path,
        passages: Bm25Retriever,
        *,
        nprobe: int = 0,
        ef_search: int = 0,
        on_gpu: bool = False,
    ) -> None:
        meta = read_meta(folder)
        self._passages = passages
        self._vectors = prepare(
            open_faiss(folder / meta.faiss), nprobe=nprobe, ef_search=ef_search, on_gpu=on_gpu
        )
        # The working memory of FAISS on a GPU serves one search at a time.
        self._turns = threading.Lock() if on_gpu else nullcontext()
        if self._vectors.ntotal != len(passages):
            raise EnvError(
                f"{meta.faiss} has {self._vectors.ntotal} vectors and the corpus {len(passages)} "
                "passages: they do not belong together"
            )
        self._encoder = Encoder(meta.encoder)
        if self._vectors.d != self._encoder.num_dimensions:
            raise EnvError(
                f"the vectors in {meta.faiss} have {self._vectors.d} dimensions, those of the "
                f"encoder {meta.encoder.model!r} {self._encoder.num_dimensions}: name the encoder "
                "that made them"
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


def read_meta(folder: Path) -> DenseMeta:
    """Return the vectors of a folder. Raises EnvError if they are missing or damaged."""
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
    """Declare the vectors of a folder complete."""
    write_json(folder / "dense.json", asdict(meta))


def open_faiss(path: Path) -> faiss.Index:
    """Open a FAISS index, mapped from disk if its kind allows it. Raises EnvError."""
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise EnvError(f"cannot read the FAISS index {path}: {error}") from error


def prepare(
    index: faiss.Index, *, nprobe: int = 0, ef_search: int = 0, on_gpu: bool = False
) -> faiss.Index:
    """Return the index set up for searching, on all GPUs in half precision if `on_gpu`.

    0 chooses a number: every 64th list, at least 8, and 64 candidates. Raises EnvError for what
    this kind of index does not have.
    """
    kinds = []
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        kinds.append("nprobe")
        automatic = max(_LEAST_LISTS, lists.nlist // _LISTS_PER_PROBE)
        _set(index, "nprobe", min(nprobe or automatic, lists.nlist))
    if _is_graph(index):
        kinds.append("ef_search")
        _set(index, "efSearch", ef_search or _CANDIDATES)
    for name, value in (("nprobe", nprobe), ("ef_search", ef_search)):
        if value and name not in kinds:
            fitting = f"use {kinds[0]}" if kinds else "it is always searched completely"
            raise EnvError(f"{name}={value} does not suit this FAISS index: {fitting}")
    return _on_gpus(index) if on_gpu else index


def _is_graph(index: faiss.Index) -> bool:
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform | faiss.IndexIDMap | faiss.IndexRefine):
        within = inner.base_index if isinstance(inner, faiss.IndexRefine) else inner.index
        inner = faiss.downcast_index(within)
    return isinstance(inner, faiss.IndexHNSW)


def _set(index: faiss.Index, name: str, value: int) -> None:
    faiss.ParameterSpace().set_index_parameter(index, name, value)


def _on_gpus(index: faiss.Index) -> faiss.Index:
    if faiss.get_num_gpus() < 1:
        raise EnvError(
            "faiss_gpu=true, but FAISS sees no GPU: install faiss-gpu-cu12 in place of faiss-cpu "
            "on a machine with a GPU, or leave faiss_gpu out"
        )
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True  # what `agentgym index` stores is no finer
    try:
        return faiss.index_cpu_to_all_gpus(index, co=options)
    except RuntimeError as error:
        raise EnvError(
            f"FAISS cannot put this index on a GPU ({error}): build a Flat or an IVF index, or "
            "leave faiss_gpu out"
        ) from error
