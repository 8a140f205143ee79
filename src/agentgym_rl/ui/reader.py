"""What the UI knows of the runs below a folder, with what is remembered between requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from agentgym_rl.evaluation.stored import first_and_last, report_tables
from agentgym_rl.runs.pictures import read_picture
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.decoders import DecodeError, Decoders
from agentgym_rl.ui.environments import Environments
from agentgym_rl.ui.episode_view import Record, read_episode, reading, token_view, view
from agentgym_rl.ui.evaluations import Evaluations
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.overview import Overview
from agentgym_rl.ui.parts import STEM
from agentgym_rl.ui.token_texts import bare_ids, texts_by_file, tokenizer_file

_ENDING_S = 5.0
"""How long an index may take to stop reading."""
_MAX_INDEXES = 8
"""Of runs whose episodes were asked for; the one asked for longest ago is forgotten."""
_MAX_KEPT_REPORTS = 3000


class RunReader:
    """Reads runs. Thread-safe; each method is one request."""

    def __init__(self, root: Path, environments: Environments) -> None:
        self._environments = environments
        self.catalog = RunCatalog(root)
        self._decoders = Decoders()
        self.overview = Overview(self.catalog, self._decoders)
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, EpisodeIndex] = OrderedDict()
        self._reports: OrderedDict[tuple[str, int, int], list[dict[str, object]]] = OrderedDict()
        self.evaluations = Evaluations(self.catalog, self.reports, self.index)

    def index(self, run: str) -> EpisodeIndex:
        folder = str(self.catalog.episodes(run))
        with self._lock:
            if folder not in self._indexes:
                self._indexes[folder] = EpisodeIndex(Path(folder), self._decoders)
            self._indexes.move_to_end(folder)
            if len(self._indexes) > _MAX_INDEXES:
                self._indexes.popitem(last=False)[1].close()
            return self._indexes[folder]

    def warm_up(self) -> None:
        """Begin with the index of the run that changed last, which is likely to be asked for."""
        changed: dict[str, float] = {}
        for run in self.catalog.find()[0]:
            with suppress(ApiError, OSError):
                changed[run] = self.catalog.episodes(run).stat().st_mtime
        if changed:
            self.index(max(changed, key=changed.__getitem__)).refresh()

    def record(self, run: str, episode: str, *, with_tokens: bool = False) -> Record:
        """Return the stored row of an episode."""
        folder = self.catalog.episodes(run)
        return read_episode(folder, episode, self._decoders, with_tokens=with_tokens)

    def episode(self, run: str, episode: str) -> dict[str, object]:
        with reading(episode):
            found = {"episode": episode} | view(self.record(run, episode))
        name, _ = self.catalog.config(run).replayed_env(str(found.get("env")))
        problem = self._environments.replay_problem(name)
        return found | {"replay_problem": problem}

    def picture(self, run: str, episode: str, name: str) -> bytes:
        """Return the stored picture of a round. Raises ApiError where there is none."""
        part, _, _ = episode.rpartition(":")
        if not STEM.fullmatch(part):
            raise ApiError(
                400, f'{episode!r} is not the id of an episode, such as "train-000012:3"'
            )
        try:
            return read_picture(self.catalog.episodes(run), part, name)
        except (OSError, ValueError) as error:
            raise ApiError(404, f"no picture {name!r} of {part}: {error}") from error

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
            texts = self._decoders.call(texts_by_file, self.catalog.inside(file), ids)
        except (DecodeError, OSError, ValueError, TypeError) as error:
            return found | {"tokens": bare_ids(ids), "problem": str(error)}
        return found | {"tokens": texts, "problem": None}

    def _tokenizer_file(self, run: str) -> Path | None:
        """Return the tokenizer of a run; of an evaluation that of its model, if it is in a run."""
        config, file = self.catalog.config(run), tokenizer_file(self.catalog.folder(run))
        model = config.word("model", "path")
        if file is not None or model is None or not config.is_evaluation:
            return file
        # Only then is it looked up: a run must not make the UI ask for paths elsewhere.
        if ".." in Path(model).parts or not Path(model).is_relative_to(self.catalog.root):
            return None
        try:
            beside = self.catalog.inside(Path(model) / "tokenizer.json")
        except ApiError:
            return None
        return beside if beside.is_file() else None

    def close(self) -> None:
        """End the processes that decode, and let what reads parts come to an end."""
        with self._lock:
            for index in self._indexes.values():
                index.close()
        self._decoders.close()
        for index in self._indexes.values():
            index.join(_ENDING_S)

    def reports(self, run: str) -> dict[str, object]:
        """Return the evaluations of a run, those of `agentgym eval` included, by step."""
        folder = self.catalog.folder(run)
        reports: list[dict[str, object]] = []
        own = self.catalog.inside(folder.eval)
        listed = sorted([*own.glob("*.json"), *folder.path.glob("report.json")])
        files, problems = first_and_last(listed)
        for file in files:
            try:
                reports += self._report(self.catalog.inside(file))
            except (OSError, ValueError, ApiError) as error:
                problems.append(f"{file.name} cannot be read: {error}")
        return {"reports": reports, "problem": "; ".join(problems) or None}

    def _report(self, file: Path) -> list[dict[str, object]]:
        """Return the evaluations that a file is about, read once as long as it stays the same."""
        stat = file.stat()
        key = (str(file), stat.st_mtime_ns, stat.st_size)
        with self._lock:
            known = self._reports.get(key)
        if known is not None:
            return known
        found = [{"name": file.stem} | table for table in report_tables(file)]
        with self._lock:
            self._reports[key] = found
            while len(self._reports) > _MAX_KEPT_REPORTS:
                self._reports.popitem(last=False)
        return found
