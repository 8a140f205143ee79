"""Adds vectors to an index: encodes the corpus in blocks, then makes a FAISS index of them.

Encoding takes long, so every block is on disk before the next begins: a build that was killed
resumes after the last complete block. Memory holds one block, and at the end the FAISS index.
`factory` is its kind: "Flat" is exact with 4 bytes per number, "SQfp16" has 2, "IVF4096,PQ64" has
64 bytes per passage.
"""

# Shape suffixes: N passages, D dimensions of a vector.

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from agentgym_rl.retrieval.build import Report
from agentgym_rl.retrieval.corpus import Corpus
from agentgym_rl.retrieval.dense import DenseMeta, open_faiss, read_meta, write_meta
from agentgym_rl.retrieval.encoder import Encoder, EncoderSettings
from agentgym_rl.retrieval.folder import IndexFolder, write_json

_UNFINISHED = "building.json"
_BLOCK_PASSAGES = 1024
_ADD_VECTORS = 65_536
_MAX_TRAINING_VECTORS = 500_000


def add_vectors(
    corpus: Corpus,
    folder: Path,
    settings: EncoderSettings,
    *,
    factory: str = "Flat",
    report: Report = lambda done, expected: None,
) -> None:
    """Add vectors to the finished index in `folder`, unless it has them already.

    Raises ValueError if the folder has no finished index, if its vectors were made by another
    encoder, or for a factory that FAISS does not know.
    """
    place = IndexFolder(folder)
    num_passages = _num_passages(place)
    if _has_vectors(place.dense, settings):
        return
    with place.locked():
        if _has_vectors(place.dense, settings):  # made during the wait
            return
        place.dense.mkdir(exist_ok=True)
        write_json(place.dense / _UNFINISHED, asdict(settings))
        encoder = Encoder(settings)
        index = _empty_index(encoder.num_dimensions, factory)
        file = place.dense / "vectors.f16"
        _encode(corpus, encoder, file, num_passages, report)
        vectors_ND = np.memmap(file, np.float16, "r", shape=(num_passages, encoder.num_dimensions))
        _fill(index, vectors_ND)
        part = place.dense / "index.faiss.part"
        faiss.write_index(index, str(part))
        part.replace(place.dense / "index.faiss")
        write_meta(place.dense, DenseMeta("index.faiss", settings))
        file.unlink()
        (place.dense / _UNFINISHED).unlink()


def use_vectors(folder: Path, faiss_file: Path, settings: EncoderSettings) -> None:
    """Add the vectors of a FAISS file made elsewhere to the finished index in `folder`.

    The file stays where it is. Raises ValueError unless it has one vector for each passage.
    """
    place = IndexFolder(folder)
    num_passages = _num_passages(place)
    num_vectors = open_faiss(faiss_file).ntotal
    if num_vectors != num_passages:
        raise ValueError(
            f"{faiss_file} has {num_vectors} vectors and the corpus {num_passages} passages: they "
            "do not belong together"
        )
    with place.locked():
        place.dense.mkdir(exist_ok=True)
        write_meta(place.dense, DenseMeta(str(faiss_file.resolve()), settings))


def _num_passages(place: IndexFolder) -> int:
    meta = place.read_meta()
    if meta is None:
        raise ValueError(f"there is no finished index in {place.root} to add vectors to")
    return meta.num_passages


def _has_vectors(folder: Path, settings: EncoderSettings) -> bool:
    """Return whether the vectors are complete. Raises ValueError if their settings differ."""
    if (folder / "dense.json").exists():
        found, is_whole = read_meta(folder).encoder, True
    elif (unfinished := folder / _UNFINISHED).exists():
        found = EncoderSettings(**json.loads(unfinished.read_text(encoding="utf-8")))
        is_whole = False
    else:
        return False
    if found != settings:
        raise ValueError(
            f"{folder} holds vectors made with {found}, not with {settings}: delete it, or use "
            "another index folder"
        )
    return is_whole


def _empty_index(num_dimensions: int, factory: str) -> faiss.Index:
    try:
        return faiss.index_factory(num_dimensions, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ValueError(f"FAISS does not know the factory {factory!r}: {error}") from None


def _encode(
    corpus: Corpus, encoder: Encoder, file: Path, num_passages: int, report: Report
) -> None:
    """Append the vectors that the file lacks."""
    row_bytes = encoder.num_dimensions * np.dtype(np.float16).itemsize
    with file.open("ab") as out:
        num_done = out.tell() // row_bytes
        out.truncate(num_done * row_bytes)
        passages = corpus.read(num_done)
        while block := list(islice(passages, _BLOCK_PASSAGES)):
            vectors_ND = encoder.encode_passages([passage.contents for passage in block])
            out.write(vectors_ND.astype(np.float16).tobytes())
            out.flush()
            num_done += len(block)
            report(num_done, num_passages)
    if num_done != num_passages:
        raise ValueError(
            f"{corpus.name} has {num_done} passages and its index {num_passages}: it has changed"
        )


def _fill(index: faiss.Index, vectors_ND: NDArray[np.float16]) -> None:
    if not index.is_trained:
        stride = -(-len(vectors_ND) // _MAX_TRAINING_VECTORS)
        index.train(vectors_ND[::stride].astype(np.float32))
    for start in range(0, len(vectors_ND), _ADD_VECTORS):
        index.add(vectors_ND[start : start + _ADD_VECTORS].astype(np.float32))
