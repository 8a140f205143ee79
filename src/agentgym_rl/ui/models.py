"""Models below the runs folder that can play. The one used last stays loaded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agentgym_rl.errors import AgentGymError, ConfigError
from agentgym_rl.lookup import is_own
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.played_episodes import PlayedEpisode

if TYPE_CHECKING:  # it imports torch, which only who lets a model play needs
    from agentgym_rl.ui.model_player import ModelPlayer, ModelReply

_INNER = ("model", "checkpoints/latest/model")


class Models:
    """Lets models reply, one at a time, on a thread of its own."""

    def __init__(self, catalog: RunCatalog) -> None:
        self._catalog = catalog
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._lock = threading.Lock()
        self._loaded: tuple[str, ModelPlayer] | None = None

    def names(self) -> list[str]:
        """Return the models that there are, as paths below the runs folder."""
        found: list[str] = []
        for run in self._catalog.find()[0]:
            for inner in _INNER:
                try:
                    folder = self._catalog.inside(self._catalog.root / run / inner)
                except ApiError:
                    continue
                if (folder / "config.json").is_file():
                    found.append((PurePosixPath(run) / inner).as_posix())
                    break
        return found

    def reply(self, name: str, play: PlayedEpisode) -> ModelReply:
        """Return what a model does next in a play; for `thread`, since it takes its time."""
        with self._lock:
            try:
                player = self._player(name)
                agent = self._agent_table(name, play.spec.name)
                return player.reply(agent, play.spec, play.first_observation, play.rounds)
            except (AgentGymError, ValueError) as error:
                raise ApiError(409, f"model {name!r} cannot play: {error}") from error

    def alternatives(self, run: str, ids: Sequence[int], place: int) -> dict[str, object]:
        """Return what the model of a run gives instead of a token; for `thread`, like `reply`."""
        name = self._of_run(run)
        with self._lock:
            try:
                return self._player(name).alternatives(ids, place) | {"model": name}
            except (AgentGymError, ValueError, IndexError) as error:
                raise ApiError(409, f"model {name!r} cannot be asked: {error}") from error

    def _of_run(self, run: str) -> str:
        """Return the model that a run left, or the newest one that it keeps; of an evaluation its
        own, if that is below the runs folder."""
        config, names = self._catalog.config(run), self.names()
        path = PurePosixPath(config.word("model", "path") or "")
        own = [(PurePosixPath(run) / inner).as_posix() for inner in _INNER]
        if config.is_evaluation and path.is_relative_to(self._catalog.root):
            below = path.relative_to(self._catalog.root)
            own = [below.as_posix(), *((below / inner).as_posix() for inner in _INNER)]
        found = next((name for name in own if name in names), None)
        if found is None:
            raise ApiError(
                409,
                "alternatives were not stored, and the run has no model below the runs folder that "
                "could be asked for them",
            )
        return found

    def _player(self, name: str) -> ModelPlayer:
        from agentgym_rl.ui.model_player import ModelPlayer  # start-up time: it imports torch

        if self._loaded is not None and self._loaded[0] == name:
            return self._loaded[1]
        if name not in self.names():
            raise ConfigError(f"there is no such model below the runs folder: {self.names()}")
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None
        player = ModelPlayer(self._model_folder(name))
        self._loaded = (name, player)
        return player

    def _agent_table(self, name: str, env: str) -> dict[str, object]:
        """Return the settings of the agent that a model's run has in an environment."""
        run = name.removesuffix("/checkpoints/latest/model").removesuffix("/model")
        run = "." if run in _INNER else run
        table = self._catalog.config(run).agent_in(env)
        # Plans and memory are of whole episodes; a round by itself has neither.
        kept = {key: table[key] for key in ("format", "include_instructions") if key in table}
        if is_own(kept.get("format")):  # a run folder is data: nothing that it names is imported
            raise ConfigError(f"agent.format={kept['format']} is a class of somebody's own")
        return kept

    def _model_folder(self, name: str) -> Path:
        """Return the folder of a model, all of whose files are below the runs folder."""
        folder = self._catalog.inside(self._catalog.root / name)
        for file in folder.iterdir():
            self._catalog.inside(file)
        if (folder / "adapter_config.json").exists():  # it names another model, of anywhere
            raise ConfigError("it is an adapter of another model, which the UI does not load")
        return folder
