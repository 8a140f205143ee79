"""What the UI knows of the runs below a folder, with what is remembered between requests."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path

from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.environments import Environments
from agentgym_rl.ui.episode_view import Record, read_episode, reading, token_view, view
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.overview import Overview
from agentgym_rl.ui.token_texts import TokenTexts, bare_ids, texts_of, tokenizer_file

_MAX_INDEXES = 8
"""Of runs whose episodes were asked for; the one asked for longest ago is forgotten."""


class RunReader:
    """Reads runs. Thread-safe; each method is one request."""

    def __init__(self, root: Path, environments: Environments) -> None:
        self._environments = environments
        self.catalog = RunCatalog(root)
        self.overview = Overview(self.catalog)
        self._tokenizers = TokenTexts()
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, EpisodeIndex] = OrderedDict()

    def index(self, run: str) -> EpisodeIndex:
        """Return the index of a run's episodes."""
        folder = str(self.catalog.episodes(run))
        with self._lock:
            if folder not in self._indexes:
                self._indexes[folder] = EpisodeIndex(Path(folder))
            self._indexes.move_to_end(folder)
            if len(self._indexes) > _MAX_INDEXES:
                self._indexes.popitem(last=False)[1].close()
            return self._indexes[folder]

    def warm_up(self) -> None:
        """Begin with the index of the run that changed last, which is likely to be asked for."""
        latest: tuple[float, str] | None = None
        for run in self.catalog.find()[0]:
            try:
                changed = self.catalog.episodes(run).stat().st_mtime
            except (ApiError, OSError):
                continue
            latest = max(latest or (changed, run), (changed, run))
        if latest is not None:
            self.index(latest[1]).refresh()

    def record(self, run: str, episode: str, *, with_tokens: bool = False) -> Record:
        """Return the stored row of an episode."""
        return read_episode(self.catalog.episodes(run), episode, with_tokens=with_tokens)

    def episode(self, run: str, episode: str) -> dict[str, object]:
        """Return an episode with its rounds."""
        with reading(episode):
            found = {"episode": episode} | view(self.record(run, episode))
        problem = self._environments.replay_problem(str(found.get("env")))
        return found | {"replay_problem": problem}

    def tokens(self, run: str, episode: str, sample: int) -> dict[str, object]:
        """Return the tokens of one sample, with their texts where the run has its tokenizer."""
        with reading(episode):
            found = token_view(self.record(run, episode, with_tokens=True), sample)
        ids, file = found["ids"], self._tokenizer_file(run)
        assert isinstance(ids, list), "a list column"
        if file is None:
            problem = "the run has no tokenizer saved, so ids stand for texts"
            return found | {"tokens": bare_ids(ids), "problem": problem}
        try:
            tokenizer = self._tokenizers.load(self.catalog.inside(file))
        except (OSError, ValueError) as error:
            return found | {"tokens": bare_ids(ids), "problem": str(error)}
        return found | {"tokens": texts_of(tokenizer, ids), "problem": None}

    def _tokenizer_file(self, run: str) -> Path | None:
        """Return the tokenizer of a run; of an evaluation that of its model, if it is in a run."""
        config, file = self.catalog.config(run), tokenizer_file(self.catalog.folder(run))
        model = config.word("model", "path")
        if file is not None or model is None or not config.is_evaluation:
            return file
        try:
            beside = self.catalog.inside(Path(model) / "tokenizer.json")
        except ApiError:
            return None
        return beside if beside.is_file() else None

    def reports(self, run: str) -> dict[str, object]:
        """Return the evaluations of a run, those of `agentgym eval` included, by step."""
        folder = self.catalog.folder(run)
        reports: list[dict[str, object]] = []
        problems: list[str] = []
        for file in sorted([*folder.eval.glob("*.json"), *folder.path.glob("report.json")]):
            try:
                content = json.loads(self.catalog.inside(file).read_text(encoding="utf-8"))
                if not isinstance(content, dict):
                    raise ValueError("it is no report")
                reports.append({"name": file.stem} | content)
            except (OSError, ValueError, RecursionError, ApiError) as error:
                problems.append(f"{file.name} cannot be read: {error}")
        return {"reports": reports, "problem": "; ".join(problems) or None}
