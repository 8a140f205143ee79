"""Which folders below the runs folder are runs."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.ui.catalog import RunCatalog


def test_a_copy_of_the_settings_that_mlflow_keeps_is_no_run(tmp_path: Path):
    for folder in ("mine", "study/seed0", "mlruns/6685/deb1/artifacts"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.toml").write_text("seed = 0\n")
    assert RunCatalog(tmp_path).find() == (["mine", "study/seed0"], None)
