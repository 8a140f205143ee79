"""Dense and hybrid retrieval with a tiny random encoder and real FAISS indexes."""

from __future__ import annotations

import json
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

from agentgym_rl.envs.scenarios.searchqa.options import SearchOptions
from agentgym_rl.envs.scenarios.searchqa.sources import open_engine
from agentgym_rl.errors import ConfigError, EnvError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.build import build_index
from agentgym_rl.retrieval.cache import CachedRetriever
from agentgym_rl.retrieval.corpus import Corpus, open_corpus
from agentgym_rl.retrieval.dense import prepare
from agentgym_rl.retrieval.dense_build import add_vectors, use_vectors
from agentgym_rl.retrieval.encoder import Encoder, EncoderSettings
from agentgym_rl.retrieval.hybrid import fuse
from agentgym_rl.retrieval.open import (
    RetrieverOptions,
    open_retriever,
    parse_options,
)
from agentgym_rl.retrieval.passages import Passage

WORDS = ("query", "passage", ":", '"', "red", "green", "blue", "fox", "owl", "whale", "one", "two")
PASSAGES = tuple(
    Passage(f"{colour}-{animal}", f"{colour} {animal}", f"{animal} {colour} {number}")
    for colour in ("red", "green", "blue")
    for animal in ("fox", "owl", "whale")
    for number in ("one",)
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random BERT of 16 dimensions with a vocabulary of a dozen words."""
    folder = tmp_path_factory.mktemp("encoder")
    words = ("[PAD]", "[UNK]", *WORDS)
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        )
    ).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    rows = [json.dumps({"id": p.id, "contents": p.contents}) for p in PASSAGES]
    path.write_text("\n".join(rows))
    return open_corpus(path)


def settings(model: str) -> EncoderSettings:
    return EncoderSettings(model, max_tokens=16)


def test_vectors_are_means_over_tokens_of_length_one(model: str):
    encoder = Encoder(settings(model))
    texts = ["red fox", "whale", "blue owl one two green"]
    vectors_BD = encoder.encode_queries(texts)
    bare = AutoModel.from_pretrained(model).eval()
    vocabulary = {word: n for n, word in enumerate(("[PAD]", "[UNK]", *WORDS))}
    for text, vector_D in zip(texts, vectors_BD, strict=True):
        ids = [vocabulary[word] for word in f"query : {text}".split()]
        with torch.no_grad():
            mean_D = bare(torch.tensor([ids])).last_hidden_state[0].mean(dim=0).numpy()
        assert vector_D == pytest.approx(mean_D / np.linalg.norm(mean_D), abs=1e-5)
    assert np.linalg.norm(encoder.encode_passages(texts), axis=1) == pytest.approx(1, abs=1e-5)


def test_dense_search_is_the_exact_nearest(model: str, corpus: Corpus, tmp_path: Path):
    build_index(corpus, tmp_path)
    add_vectors(corpus, tmp_path, settings(model))
    add_vectors(corpus, tmp_path, settings(model))  # nothing left to do
    encoder = Encoder(settings(model))
    passages_ND = encoder.encode_passages([p.contents for p in PASSAGES])
    queries = ["red fox", "", "owl two", "…"]
    with open_retriever(RetrieverOptions(backend="dense", index=str(tmp_path))) as retriever:
        results = retriever.search(queries, 4)
        assert retriever.get("red-owl") == PASSAGES[1] and len(retriever) == 9
        assert len(retriever.search(["red"], 100)[0]) == 9
    assert results[1] == []
    for place in (0, 2, 3):
        scores_N = passages_ND @ encoder.encode_queries([queries[place]])[0]
        best = np.argsort(-scores_N, kind="stable")[:4]
        assert [hit.score for hit in results[place]] == pytest.approx(scores_N[best], abs=2e-3)
        assert results[place][0].passage == PASSAGES[best[0]]


def test_a_prebuilt_faiss_file_is_used_where_it_is(model: str, corpus: Corpus, tmp_path: Path):
    vectors_ND = Encoder(settings(model)).encode_passages([p.contents for p in PASSAGES])
    for name, metric in (("ip", faiss.METRIC_INNER_PRODUCT), ("l2", faiss.METRIC_L2)):
        file, index = tmp_path / f"{name}.index", tmp_path / name
        flat = faiss.index_factory(16, "Flat", metric)
        flat.add(vectors_ND)
        faiss.write_index(flat, str(file))
        build_index(corpus, index)
        use_vectors(index, file, settings(model))
        with open_retriever(RetrieverOptions(backend="dense", index=str(index))) as retriever:
            hit = retriever.search(['"green owl" owl green one'], 1)[0][0]
        assert not list(index.glob("dense/*.faiss"))
        assert -1 <= hit.score <= 1
    short = faiss.IndexFlatIP(16)
    short.add(vectors_ND[:3])
    faiss.write_index(short, str(tmp_path / "short.index"))
    with pytest.raises(ValueError, match="3 vectors and the corpus 9"):
        use_vectors(tmp_path / "ip", tmp_path / "short.index", settings(model))
    with pytest.raises(EnvError, match="cannot read the FAISS index"):
        use_vectors(tmp_path / "ip", tmp_path / "missing.index", settings(model))


def test_an_interrupted_encoding_goes_on(model: str, corpus: Corpus, tmp_path: Path):
    build_index(corpus, tmp_path)
    dense = tmp_path / "dense"
    add_vectors(corpus, tmp_path, settings(model))
    whole = (dense / "index.faiss").read_bytes()
    vectors_ND = faiss.read_index(str(dense / "index.faiss")).reconstruct_n(0, 9)
    (dense / "building.json").write_text(
        json.dumps(json.loads((dense / "dense.json").read_text())["encoder"])
    )
    for name in ("dense.json", "index.faiss"):
        (dense / name).unlink()
    # Four vectors and a piece of the fifth, as kill -9 leaves them.
    (dense / "vectors.f16").write_bytes(vectors_ND.astype(np.float16).tobytes()[: 4 * 32 + 7])
    reports: list[int] = []
    add_vectors(corpus, tmp_path, settings(model), report=lambda done, _: reports.append(done))
    assert reports == [9] and (dense / "index.faiss").read_bytes() == whole
    assert sorted(file.name for file in dense.iterdir()) == ["dense.json", "index.faiss"]


def test_vectors_of_another_encoder_are_refused(model: str, corpus: Corpus, tmp_path: Path):
    with pytest.raises(ValueError, match="no finished index"):
        add_vectors(corpus, tmp_path, settings(model))
    build_index(corpus, tmp_path)
    with pytest.raises(EnvError, match="no vectors"):
        open_retriever(RetrieverOptions(backend="hybrid", index=str(tmp_path)))
    with pytest.raises(ValueError, match="does not know the factory 'Fltt'"):
        add_vectors(corpus, tmp_path, settings(model), factory="Fltt")
    add_vectors(corpus, tmp_path, settings(model), factory="SQfp16")
    with pytest.raises(ValueError, match="made with"):
        add_vectors(corpus, tmp_path, EncoderSettings(model, query_prefix=""))
    with pytest.raises(EnvError, match="cannot load the encoder"):
        Encoder(EncoderSettings(str(tmp_path / "nothing")))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"faiss": "f", "encoder": {"modle": "m"}}'])
def test_a_damaged_file_of_vectors_is_named(corpus: Corpus, tmp_path: Path, text: str):
    build_index(corpus, tmp_path)
    (tmp_path / "dense").mkdir()
    (tmp_path / "dense" / "dense.json").write_text(text)
    with pytest.raises(EnvError, match=r"dense\.json is damaged .* build the vectors again"):
        open_retriever(RetrieverOptions(backend="dense", index=str(tmp_path)))


def test_hybrid_has_what_either_finds(model: str, corpus: Corpus, tmp_path: Path):
    build_index(corpus, tmp_path)
    add_vectors(corpus, tmp_path, settings(model))
    with open_retriever(RetrieverOptions(backend="hybrid", index=str(tmp_path))) as retriever:
        found = retriever.search(["green whale", "zebra"], 3)
    assert "green-whale" in [hit.passage.id for hit in found[0]]
    assert len(found[1]) == 3  # no word of it is there, but every text has a nearest vector


def test_fusion_by_hand():
    a, b, c = (Passage(name, "", name) for name in "abc")
    fused = fuse([[Hit(a, 9.0), Hit(b, 8.0)], [Hit(b, 0.2), Hit(c, 0.1)]])
    # b: 1/62 + 1/61; a: 1/61; c: 1/62
    assert [hit.passage.id for hit in fused] == ["b", "a", "c"]
    assert [hit.score for hit in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])


class _Counting(Retriever):
    def __init__(self) -> None:
        self.asked: list[str] = []

    def search(self, queries, topk):
        self.asked += queries
        if "bad" in queries:
            raise EnvError("broken")
        return [[Hit(Passage(query, "", query), 1.0)] * topk for query in queries]

    def get(self, passage_id):
        return None

    def __len__(self):
        return 1


def test_the_cache_asks_once_and_forgets_the_oldest():
    inner = _Counting()
    cached = CachedRetriever(inner, max_queries=2)
    assert [len(hits) for hits in cached.search(["x", "y", "x"], 1)] == [1, 1, 1]
    assert inner.asked == ["x", "y"]
    cached.search(["x"], 1)[0].clear()  # the caller's own list
    assert len(cached.search(["x"], 1)[0]) == 1
    cached.search(["z"], 1)
    cached.search(["y"], 1)
    assert inner.asked == ["x", "y", "z", "y"]
    assert len(cached.search(["y"], 2)[0]) == 2
    for _ in range(2):
        with pytest.raises(EnvError):
            cached.search(["bad"], 1)
    assert inner.asked[-2:] == ["bad", "bad"]


# How much of an approximate index is searched


def random_index(factory: str) -> tuple[faiss.Index, np.ndarray, np.ndarray]:
    """Return an index of 2,000 random vectors, 100 queries and the true neighbour of each."""
    rng = np.random.default_rng(0)
    vectors_ND = rng.standard_normal((2000, 16)).astype(np.float32)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    queries_QD = vectors_ND[:100] + 0.3 * rng.standard_normal((100, 16)).astype(np.float32)
    index = faiss.index_factory(16, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors_ND)
    index.add(vectors_ND)
    return index, queries_QD, (queries_QD @ vectors_ND.T).argmax(axis=1)


def recall(index: faiss.Index, queries_QD: np.ndarray, true_Q: np.ndarray) -> float:
    _, rows_Q1 = index.search(queries_QD, 1)
    return float((rows_Q1[:, 0] == true_Q).mean())


@pytest.mark.parametrize("factory", ["IVF32,Flat", "PCA16,IVF32,Flat", "IVF32,SQfp16"])
def test_more_lists_find_more_of_the_true_neighbours(factory: str):
    index, queries_QD, true_Q = random_index(factory)
    found = [recall(prepare(index, nprobe=nprobe), queries_QD, true_Q) for nprobe in (1, 0, 32)]
    assert found[0] < 0.75 < 0.9 < found[1] <= found[2]  # 0 is eight lists of 32
    assert found[2] > 0.97


def test_more_candidates_find_more_of_the_true_neighbours():
    index, queries_QD, true_Q = random_index("HNSW4")
    found = [
        recall(prepare(index, ef_search=ef_search), queries_QD, true_Q) for ef_search in (1, 0, 500)
    ]
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize(
    ("factory", "wishes", "reason"),
    [
        ("Flat", {"nprobe": 4}, "nprobe=4 .* searched completely"),
        ("HNSW4", {"nprobe": 4}, "nprobe=4 .* use ef_search"),
        ("IVF8,Flat", {"ef_search": 9}, "ef_search=9 .* use nprobe"),
    ],
)
def test_a_number_that_does_not_suit_the_index_is_refused(
    factory: str, wishes: dict[str, int], reason: str
):
    with pytest.raises(EnvError, match=reason):
        prepare(random_index(factory)[0], **wishes)


def test_a_number_above_that_of_lists_means_all():
    index, _, _ = random_index("IVF8,Flat")
    assert faiss.extract_index_ivf(prepare(index, nprobe=999)).nprobe == 8


@pytest.mark.skipif(faiss.get_num_gpus() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(EnvError, match="faiss-gpu-cu12"):
        prepare(random_index("Flat")[0], on_gpu=True)


@pytest.mark.gpu
@pytest.mark.skipif(faiss.get_num_gpus() < 1, reason="FAISS sees no GPU")
@pytest.mark.parametrize("factory", ["Flat", "IVF32,Flat"])
def test_the_gpu_finds_what_the_cpu_finds(factory: str):
    index, queries_QD, true_Q = random_index(factory)
    here = recall(prepare(index), queries_QD, true_Q)
    there = recall(prepare(index, on_gpu=True), queries_QD, true_Q)
    assert there == pytest.approx(here, abs=0.02)


def test_options_about_vectors_reach_the_index(model: str, corpus: Corpus, tmp_path: Path):
    build_index(corpus, tmp_path)
    add_vectors(corpus, tmp_path, settings(model), factory="IVF2,Flat")
    options = SearchOptions(retriever="dense", index=str(tmp_path), nprobe=1)
    assert len(open_engine(options).search(["red fox"], 9)[0]) < 9  # the other list is not seen
    with pytest.raises(EnvError, match="ef_search=5"):
        open_engine(SearchOptions(retriever="dense", index=str(tmp_path), ef_search=5))
    with pytest.raises(ConfigError, match="nprobe=3 is about vectors"):
        RetrieverOptions(nprobe=3)
    with pytest.raises(ValueError, match=r"nprobe must be .* at least 0"):
        SearchOptions(nprobe=-1)
    assert parse_options({"backend": "dense", "index": "x", "nprobe": "4"}).nprobe == 4
