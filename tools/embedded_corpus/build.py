"""Makes the data of the embedded corpus: passages, and the questions of every split.

    python -m tools.embedded_corpus.build

The same facts give the same lines on every machine. A file whose lines have not changed is left
alone, because another version of the compressor may write other bytes.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson

from agentgym_rl.envs.scenarios.searchqa.embedded import (
    SPLITS,
    Split,
    embedded_corpus_file,
    embedded_questions_file,
)
from tools.embedded_corpus.choose import choose
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.packages import check_packages
from tools.embedded_corpus.pool import Pool
from tools.embedded_corpus.screened import load_screened_out
from tools.embedded_corpus.world import World, load_world


def main() -> None:
    """Write the data into the package."""
    check_packages()
    world = load_world()
    for file, lines in make_files(world, choose_questions(world)):
        print(f"{file}: {'written' if write(file, lines) else 'unchanged'}")


def choose_questions(world: World) -> dict[Split, list[Draft]]:
    """Return the questions of every split, without those that were screened out."""
    screened_out = load_screened_out()
    return choose(Pool(world), lambda draft: draft.key in screened_out)


def make_files(
    world: World, drafts: Mapping[Split, Sequence[Draft]]
) -> Iterator[tuple[Path, bytes]]:
    """Yield every file of the package with its uncompressed lines."""
    passages = ({"id": passage.id, "contents": passage.contents} for passage in world.passages())
    yield embedded_corpus_file(), _lines(passages)
    for split in SPLITS:
        questions = (draft.as_question(index) for index, draft in enumerate(drafts[split]))
        yield embedded_questions_file(split), _lines(map(asdict, questions))


def write(file: Path, lines: bytes) -> bool:
    """Write the compressed lines; return False if the file already has them."""
    if file.is_file() and lzma.decompress(file.read_bytes()) == lines:
        return False
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(lzma.compress(lines))
    return True


def _lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


if __name__ == "__main__":
    main()
