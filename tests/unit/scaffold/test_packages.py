"""What `agentgym init` writes; that it works is in tests/e2e/test_init.py."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.scaffold.packages import make_package
from case_shares import spread_over


@pytest.mark.parametrize("kind", ["env", "agent", "algorithm"])
def test_a_package_has_the_users_name_everywhere(kind: str, tmp_path: Path):
    package = make_package(kind, "deep-sea", tmp_path)
    assert package.path == tmp_path / "deep_sea"
    assert f"src/deep_sea/{kind}.py" in package.files and ".gitignore" in package.files
    texts = [(package.path / file).read_text() for file in package.files]
    assert not any(f"my_{kind}" in text or f"My{kind.title()}" in text for text in texts)
    project = tomllib.loads((package.path / "pyproject.toml").read_text())["project"]
    assert project["name"] == "deep-sea"
    assert "class DeepSea" in (package.path / f"src/deep_sea/{kind}.py").read_text()


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="already exists"):
        make_package("env", "mine", tmp_path)
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "../up", "a b", "1st", "class", "x" * 80, "é", "a/b", "torch.x"]
)
def test_a_name_that_is_no_package_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be the name"):
        make_package("env", name, tmp_path)


@pytest.mark.parametrize("name", spread_over(["babyai", "json", "agentgym_rl", "pydantic"], 2))
def test_a_name_that_is_taken_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="is taken"):
        make_package("env", name, tmp_path)
