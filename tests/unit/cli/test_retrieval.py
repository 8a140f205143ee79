"""`agentgym index` and the options of `agentgym serve searchqa-retriever`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_rl.cli.retrieval import VectorOptions, index_corpus, serve_retriever
from agentgym_rl.errors import AgentGymError, ConfigError
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever, parse_options
from agentgym_rl.serving.bound import Address

WORDS_ONLY = VectorOptions(None, None, "Flat", "query: ", "passage: ")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": f"word{n}"}) + "\n" for n in range(30)))
    return path


def test_index_says_what_it_made_and_can_be_repeated(corpus: Path, tmp_path: Path, capsys):
    for _ in range(2):
        index_corpus(corpus, tmp_path / "index", WORDS_ONLY)
        assert "30 passages of corpus.jsonl in" in capsys.readouterr().out
    with open_retriever(RetrieverOptions(index=str(tmp_path / "index"))) as retriever:
        assert retriever.search(["word12"], 3)[0][0].passage.id == "12"


def test_a_faiss_file_needs_its_encoder(corpus: Path, tmp_path: Path):
    options = VectorOptions(None, tmp_path / "x.faiss", "Flat", "", "")
    with pytest.raises(ConfigError, match="--faiss needs --dense"):
        index_corpus(corpus, tmp_path / "index", options)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VectorOptions(None, None, "SQfp16", "", ""), "--factory SQfp16 needs --dense MODEL"),
        (
            VectorOptions("/no/model", None, "Flat", "", ""),
            "encoder '/no/model': there is no such dir",
        ),
        (VectorOptions("m", Path("no.faiss"), "Flat", "", ""), "there is no file no.faiss"),
    ],
)
def test_what_is_wrong_with_vectors_is_found_before_the_build(
    corpus: Path, tmp_path: Path, options: VectorOptions, words: str
):
    with pytest.raises(AgentGymError, match=words):
        index_corpus(corpus, tmp_path / "index", options)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topk": "three"}, "topk must be a whole number"),
        ({"topk": True}, "topk must be a whole number"),
        ({"topk": 0}, "topk must be a whole number from 1 to 1000, got 0"),
        ({"topk": 1001}, "topk must be a whole number from 1 to 1000, got 1001"),
        ({"indx": "x"}, "did you mean 'index'"),
        ({"corpus": 5}, "corpus=5"),
        ({"timeout_s": "soon"}, "timeout_s='soon'"),
        ({"backend": "lucene"}, "should be 'bm25', 'dense'"),
        ({"backend": "remote"}, "go together"),
    ],
)
def test_wrong_options_are_refused_in_words(options: dict[str, object], words: str):
    with pytest.raises(ConfigError, match=words):
        serve_retriever(Address(port=0), options)


def test_options_are_read():
    given = {"backend": "remote", "url": "http://localhost:1", "timeout_s": 3}
    assert parse_options(given) == RetrieverOptions(
        backend="remote", url="http://localhost:1", timeout_s=3.0
    )
