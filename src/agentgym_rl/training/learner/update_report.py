"""What an update did, and what the updates of a step did on average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """One optimiser update. Means are over its action tokens.

    None means that the method has no such number: no policy sampled a demonstration, so there is
    nothing to compare it with.
    """

    loss: float = 0.0
    """Aggregated as the algorithm says."""
    entropy: float = 0.0
    """Mean entropy of the policy, in nats."""
    kl: float | None = 0.0
    """Mean divergence of the policy from what it is compared with."""
    logprob_diff: float | None = 0.0
    """Mean difference between the log-probabilities of learner and engine."""
    grad_norm: float = 0.0
    """Before clipping; 0 where nothing was applied."""
    num_skipped: float = 0.0
    """Optimisers whose gradient was not finite; in a mean over updates, their sum."""
    lr: float = 0.0
    critic_grad_norm: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    """Means by metric name: what the loss reports, and entropies of kinds of tokens."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers under their names in metrics.jsonl."""
        named = {
            "train/loss": self.loss,
            "train/entropy": self.entropy,
            "train/kl": self.kl,
            "train/logprob_diff": self.logprob_diff,
            "train/grad_norm": self.grad_norm,
            "train/updates_skipped": self.num_skipped,
            "train/lr": self.lr,
            "train/critic_grad_norm": self.critic_grad_norm,
        }
        return {name: value for name, value in named.items() if value is not None} | dict(
            self.details
        )


NOTHING_LEARNED = UpdateReport(num_skipped=1.0, details={"train/clip_fraction": 0.0})
"""For a step whose groups all lack spread, or whose episodes are all masked."""


def mean_report(reports: Sequence[UpdateReport]) -> UpdateReport:
    """Return the means over updates, and the number of skipped ones.

    A detail that only some updates have (a kind of token may not occur in all) is a mean over them.
    """
    details: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.details.items():
            details.setdefault(name, []).append(value)
    return UpdateReport(
        loss=_mean(report.loss for report in reports),
        entropy=_mean(report.entropy for report in reports),
        kl=_mean_of_known(report.kl for report in reports),
        logprob_diff=_mean_of_known(report.logprob_diff for report in reports),
        grad_norm=_mean(report.grad_norm for report in reports),
        num_skipped=sum(report.num_skipped for report in reports),
        lr=_mean(report.lr for report in reports),
        critic_grad_norm=_mean_of_known(report.critic_grad_norm for report in reports),
        details={name: _mean(found) for name, found in details.items()},
    )


def imitation_report(report: UpdateReport) -> UpdateReport:
    """Return the report without the comparisons with a sampling policy."""
    return replace(report, kl=None, logprob_diff=None)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return _mean(found) if found else None
