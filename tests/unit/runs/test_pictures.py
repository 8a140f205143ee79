"""Pictures of rounds: who keeps them, how they are stored, and what is no picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.rollout.episode import EpisodeSpec, run_episode
from agentgym_rl.runs.episodes import read_episodes, write_episodes
from agentgym_rl.runs.pictures import read_picture
from agentgym_rl.types import Episode, Task
from fake_engines import ScriptedEngine, make_limits, make_participants
from fakes import CountingEnv, fake_spec

JPEG = b"\xff\xd8\xff"


class PicturedEnv(CountingEnv):
    """Its picture is its count."""

    spec: ClassVar[EnvSpec] = fake_spec("pictured", keeps_pictures=True)

    def details(self) -> Mapping[str, JsonValue]:
        return {"acted_on": [1.0, 2.0, 30.0, self._count]}

    def render(self) -> bytes | None:
        return JPEG + bytes([self._count])


class UnaskedEnv(PicturedEnv):
    """Has pictures that nobody keeps."""

    spec: ClassVar[EnvSpec] = fake_spec("unasked")


async def play(env: type[CountingEnv], share: float, sample: int = 0) -> Episode:
    source = LocalEnvSource(env)
    engine = ScriptedEngine(["add 1", "add 2"])
    spec = EpisodeSpec(Task(env.spec.name, "train", 2), sample, noise=(0,))
    try:
        participants = await make_participants(source, engine)
        return await run_episode(spec, participants, make_limits(picture_share=share))
    finally:
        await source.aclose()


async def test_a_round_keeps_what_was_there_before_its_action(tmp_path: Path):
    episode = await play(PicturedEnv, 1.0)
    assert [item.picture for item in episode.rounds] == [JPEG + b"\x00", JPEG + b"\x01"]
    assert [item.acted_on for item in episode.rounds] == [(1, 2, 30, 1), (1, 2, 30, 3)]
    part = write_episodes(tmp_path, [[episode, episode]], phase="eval", step=3)
    again = read_episodes(part, with_pictures=True)[1]
    assert [item.picture for item in again.rounds] == [JPEG + b"\x00", JPEG + b"\x01"]
    assert [item.acted_on for item in again.rounds] == [(1, 2, 30, 1), (1, 2, 30, 3)]
    assert [item.picture for item in read_episodes(part)[1].rounds] == [None, None]
    files = sorted(file.name for file in (tmp_path / "pictures" / "eval-000003").iterdir())
    assert files == ["0-0.jpg", "0-1.jpg", "1-0.jpg", "1-1.jpg"]


async def test_a_part_that_is_written_again_keeps_no_old_pictures(tmp_path: Path):
    with_pictures, without = await play(PicturedEnv, 1.0), await play(PicturedEnv, 0.0)
    write_episodes(tmp_path, [[with_pictures]], phase="eval", step=3)
    part = write_episodes(tmp_path, [[without]], phase="eval", step=3)
    assert not (tmp_path / "pictures" / "eval-000003").exists()
    assert read_episodes(part) == [without]


@pytest.mark.parametrize(("env", "share"), [(PicturedEnv, 0.0), (UnaskedEnv, 1.0)])
async def test_others_keep_none(env: type[CountingEnv], share: float, tmp_path: Path):
    episode = await play(env, share)
    assert [item.picture for item in episode.rounds] == [None, None]
    write_episodes(tmp_path, [[episode]], phase="eval", step=3)
    assert not (tmp_path / "pictures").exists()


def test_a_share_of_the_episodes_is_chosen_by_chance_and_always_the_same():
    specs = [
        EpisodeSpec(Task("pictured", "train", n), 0, noise=(0, "step", 1)) for n in range(2000)
    ]
    chosen = [spec.has_pictures(0.02) for spec in specs]
    assert 20 <= sum(chosen) <= 60
    assert chosen == [spec.has_pictures(0.02) for spec in specs]


@pytest.mark.parametrize("name", ["../../secret", "0-0.svg", "0-0.jpg/..", "", "link.jpg"])
def test_only_pictures_of_the_part_are_read(name: str, tmp_path: Path):
    folder = tmp_path / "pictures" / "eval-000003"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(JPEG)
    (folder / "link.jpg").symlink_to(tmp_path / "secret")
    with pytest.raises((OSError, ValueError)):
        read_picture(tmp_path, "eval-000003", name)


def test_what_is_no_picture_and_what_a_link_leads_to_is_not_read(tmp_path: Path):
    folder = tmp_path / "real" / "eval-000003"
    folder.mkdir(parents=True)
    (folder / "0-0.jpg").write_bytes(b"<svg onload=alert(1)>")
    (folder / "0-1.jpg").symlink_to("/etc/hostname")
    (tmp_path / "pictures").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="is a link"):
        read_picture(tmp_path, "eval-000003", "0-0.jpg")
    (tmp_path / "pictures").unlink()
    (tmp_path / "real").rename(tmp_path / "pictures")
    with pytest.raises(ValueError, match="neither PNG nor JPEG"):
        read_picture(tmp_path, "eval-000003", "0-0.jpg")
    with pytest.raises(OSError, match="not a regular file"):
        read_picture(tmp_path, "eval-000003", "0-1.jpg")
