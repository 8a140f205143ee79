"""`[callbacks]`: what watches a run and acts on one of its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from agentgym_rl.config.base import BaseConfig
from agentgym_rl.errors import did_you_mean

SUCCESS = "eval/success_rate"
"""The mean over environments; a run of one environment has it as eval/<env>/success_rate."""
_OF_EVALUATIONS = ("success_rate", "reward_mean", "rounds_mean")
_GROUPS = ("eval", "rollout", "train", "time")


class CallbacksConfig(BaseConfig):
    """End a run early, keep its best model, upload its final one."""

    metric: str = SUCCESS
    """What `early_stop` and `keep_best` judge by: a name in metrics.jsonl."""

    mode: Literal["max", "min"] = "max"
    """Whether more of the metric is better, or less."""

    early_stop: int = Field(default=0, ge=0)
    """End the run when the metric has not improved this many times in a row; 0 never does. A metric
    of evaluations counts once per evaluation, any other once per step."""

    min_change: float = Field(default=0.0, ge=0)
    """`early_stop` counts only an improvement above this."""

    keep_best: bool = False
    """Keep the model of the checkpoint with the best metric in model.best/."""

    push_to_hub: str = ""
    """Repository on the Hugging Face Hub, such as "me/my-agent", that the final model is uploaded
    to, private where it is new; empty uploads nothing."""

    @property
    def judges(self) -> bool:
        """Whether anything is decided by the metric."""
        return bool(self.early_stop or self.keep_best)


def judged_metric(metric: str, labels: list[str]) -> str:
    """Return the metric by its name in metrics.jsonl, where one environment has no mean."""
    return f"eval/{labels[0]}/success_rate" if metric == SUCCESS and len(labels) == 1 else metric


def check_callbacks(
    callbacks: CallbacksConfig, labels: Mapping[str, object], *, eval_tasks: int, eval_every: int
) -> None:
    """Refuse to judge by a metric that this run cannot have."""
    if not callbacks.judges:
        return
    metric = judged_metric(callbacks.metric, list(labels))
    group, *rest = metric.split("/")
    given = f"callbacks.metric={callbacks.metric}"
    if group not in _GROUPS or not rest:
        raise ValueError(
            f"{given} is not a metric: a name begins with {'/, '.join(_GROUPS)}/ "
            "(docs/reference/metrics.md lists them)"
        )
    if group != "eval":
        return
    if not eval_tasks:
        raise ValueError(f"{given} comes from evaluations, and eval.tasks=0: raise it")
    if callbacks.early_stop and not eval_every:
        raise ValueError(
            f"{given} comes from evaluations, and eval.every=0 makes none during training: set "
            "eval.every, or callbacks.metric=rollout/success_rate"
        )
    check_of_evaluations(metric, labels, given=given)


def check_of_evaluations(metric: str, labels: Iterable[str], *, given: str) -> None:
    """Refuse a metric under eval/ that no evaluation of these environments has."""
    _, *rest = metric.split("/")
    if len(rest) == 1 and metric != SUCCESS:
        raise ValueError(
            f"{given}: the only mean over environments is {SUCCESS}; of one there are "
            f"eval/<name>/{', '.join(_OF_EVALUATIONS)}"
        )
    if len(rest) > 1 and rest[0] not in labels:
        raise ValueError(
            f"{given}: the run has no environment {rest[0]!r}; it has {', '.join(labels)}"
        )
    if len(rest) == 2 and rest[1] not in _OF_EVALUATIONS:
        raise ValueError(
            f"{given}: evaluations have no {rest[1]!r}{did_you_mean(rest[1], _OF_EVALUATIONS)}; "
            f"they have {', '.join(_OF_EVALUATIONS)}, and env/<name> and reward/<part>"
        )
