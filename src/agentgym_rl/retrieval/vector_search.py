"""How a FAISS index is searched: how much of an approximate one, and on which device.

An inverted file (IVF) looks into `nprobe` of its lists and a graph (HNSW) keeps `ef_search`
candidates: more of either finds more of the true neighbours and takes longer. FAISS itself opens
with one list and 16 candidates, which miss too many.
"""

from __future__ import annotations

from dataclasses import dataclass

import faiss

from agentgym_rl.errors import EnvError

_LEAST_LISTS = 8
_LISTS_PER_PROBE = 64
_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The user's wishes; 0 leaves a number to us."""

    nprobe: int = 0
    """Lists of an IVF index that a search looks into; 0 takes every 64th, at least 8."""
    ef_search: int = 0
    """Candidates of an HNSW index; 0 takes 64."""
    on_gpu: bool = False
    """Copy the index to all GPUs, each with a share of it, in half precision."""


def prepare(index: faiss.Index, wishes: VectorSearch) -> faiss.Index:
    """Return the index set up for searching. Raises EnvError for a wish that it cannot fulfil."""
    kinds = []
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        kinds.append("nprobe")
        automatic = max(_LEAST_LISTS, lists.nlist // _LISTS_PER_PROBE)
        _set(index, "nprobe", min(wishes.nprobe or automatic, lists.nlist))
    if _is_graph(index):
        kinds.append("ef_search")
        _set(index, "efSearch", wishes.ef_search or _CANDIDATES)
    for name, value in (("nprobe", wishes.nprobe), ("ef_search", wishes.ef_search)):
        if value and name not in kinds:
            fitting = f"it can have {kinds[0]}" if kinds else "it is searched whole"
            raise EnvError(f"{name}={value} does not suit this FAISS index: {fitting}")
    return _on_gpus(index) if wishes.on_gpu else index


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
            "FAISS sees no GPU, so faiss_gpu=true cannot be: install faiss-gpu-cu12 in place of "
            "faiss-cpu on a machine with a GPU, or leave faiss_gpu out"
        )
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True  # what `agentgym index` stores is no finer
    try:
        return faiss.index_cpu_to_all_gpus(index, co=options)
    except RuntimeError as error:
        raise EnvError(
            f"FAISS cannot put this index on a GPU ({error}): build a Flat or an IVF one, or leave "
            "faiss_gpu out"
        ) from error
