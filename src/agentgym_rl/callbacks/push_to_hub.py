"""Uploads the final model to the Hugging Face Hub."""

from __future__ import annotations

import importlib.util
import logging

from agentgym_rl.callbacks.base import Callback
from agentgym_rl.errors import ConfigError, install_command
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import RunFolder

logger = logging.getLogger(__name__)


class PushToHub(Callback):
    """Uploads `model/` with its card when the run is done.

    The key is that of `hf auth login` or HF_TOKEN. An upload that fails is reported with the
    command that uploads the model later, and the run counts as done.
    """

    def __init__(self, repo: str, *, private: bool = True) -> None:
        """`private` says what a new repository is; one that exists stays as it is."""
        if repo.count("/") != 1 or not all(repo.split("/")):
            raise ConfigError(
                f"callbacks.push_to_hub={repo} is not a repository: write it like me/my-agent"
            )
        if importlib.util.find_spec("huggingface_hub") is None:
            raise ConfigError(f"uploading needs huggingface_hub: {install_command('train')}")
        self._repo, self._private = repo, private

    def on_run_end(self, run: Run) -> None:
        from huggingface_hub import HfApi  # start-up time, and only who uploads needs it

        model, api = RunFolder(run.folder).model, HfApi()
        try:
            api.create_repo(self._repo, private=self._private, exist_ok=True)
            api.upload_folder(
                repo_id=self._repo,
                folder_path=model,
                commit_message=f"Model of the run {run.folder.name}",
            )
        except Exception as error:  # noqa: BLE001 - the network, the key, the Hub: the run is not to blame
            logger.warning(
                "uploading to %s failed (%s: %s); upload it later with: hf upload %s %s",
                self._repo, type(error).__name__, error, self._repo, model,
            )  # fmt: skip
