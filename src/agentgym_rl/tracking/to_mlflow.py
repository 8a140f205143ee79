"""MLflow: the server of MLFLOW_TRACKING_URI, or else a file store beside the run, runs/mlruns/.

A run is found again by a tag. MLflow adds to a metric's history what it is sent, so a number that
is there already is not sent again.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from agentgym_rl.tracking.base import (
    NOTHING_YET,
    Entry,
    SampleEpisode,
    TrackedRun,
    Tracker,
    is_small,
)

# MLflow asks for this consent before it writes its oldest and simplest store.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

_TAG = "agentgym_rl.id"
_MAX_PARAMS, _MAX_METRICS = 100, 1000
"""Of one request, as MLflow allows."""
_MAX_VALUE = 500


class MlflowTracker(Tracker):
    """Sends to MLflow by its client; the global state of the package is left alone."""

    def open(self, run: TrackedRun) -> int:
        address = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(address or (run.folder.parent / "mlruns").as_uri())
        self._run = self._found(run)
        id_ = self._run.info.run_id
        self._client.update_run(id_, status="RUNNING")
        missing = [
            Param(key, str(value)[:_MAX_VALUE])
            for key, value in run.settings.items()
            if key not in self._run.data.params
        ]
        for start in range(0, len(missing), _MAX_PARAMS):
            self._client.log_batch(id_, params=missing[start : start + _MAX_PARAMS])
        self._client.log_artifact(id_, str(run.folder / "config.toml"))
        self._is_known = False
        return NOTHING_YET

    def log(self, entry: Entry) -> None:
        now, id_ = int(time.time() * 1000), self._run.info.run_id
        if not self._is_known:
            self._sent = self._history()
        metrics = [
            Metric(name, number, now, entry.step)
            for name, number in ((_name(key), value) for key, value in entry.numbers.items())
            if entry.step not in self._sent.get(name, ())
        ]
        self._is_known = False  # where this fails, a part may be there
        for start in range(0, len(metrics), _MAX_METRICS):
            self._client.log_batch(id_, metrics=metrics[start : start + _MAX_METRICS])
        for metric in metrics:
            self._sent.setdefault(metric.key, set()).add(entry.step)
        self._is_known = True
        if not entry.episodes:
            return
        rows = [episode.row() for episode in entry.episodes]
        table = {"columns": SampleEpisode.columns(), "data": rows}
        self._client.log_dict(id_, table, f"episodes/step-{entry.step:06d}.json")
        for episode in entry.episodes:
            if episode.picture:
                place = f"pictures/step-{entry.step:06d}/{episode.label}"
                self._client.log_artifact(id_, str(episode.picture), place)

    def finish(self, model: Path | None) -> None:
        id_ = self._run.info.run_id
        if model is not None:
            self._client.set_tag(id_, "model", str(model.resolve()))
            if is_small(model):
                self._client.log_artifacts(id_, str(model), "model")
        self._client.set_terminated(id_, "KILLED" if model is None else "FINISHED")

    def _history(self) -> dict[str, set[int]]:
        """Return the steps that MLflow has of each metric."""
        id_ = self._run.info.run_id
        return {
            name: {item.step for item in self._client.get_metric_history(id_, name)}
            for name in self._client.get_run(id_).data.metrics
        }

    def _found(self, run: TrackedRun) -> Run:
        """Return the run of an earlier process, or a new one."""
        experiment = self._client.get_experiment_by_name(run.project)
        if experiment is not None:
            known = self._client.search_runs(
                [experiment.experiment_id], f"tags.`{_TAG}` = '{run.id}'", max_results=1
            )
            if known:
                return self._client.get_run(known[0].info.run_id)
            id_ = experiment.experiment_id
        else:
            id_ = self._new_experiment(run.project)
        return self._client.create_run(
            id_, run_name=run.name, tags={_TAG: run.id, "folder": str(run.folder)}
        )

    def _new_experiment(self, name: str) -> str:
        try:
            return self._client.create_experiment(name)
        except MlflowException:  # another run was faster
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return found.experiment_id


def _name(metric: str) -> str:
    """Return a metric's name in the characters that MLflow allows."""
    return re.sub(r"[^\w./: -]", "_", metric)
