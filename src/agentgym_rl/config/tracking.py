"""The trackers that a recipe can name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentgym_rl.errors import did_you_mean
from agentgym_rl.lookup import is_own

TRACKERS: Mapping[str, str] = MappingProxyType(
    {
        name: f"agentgym_rl.tracking.to_{name}:{cls}"
        for name, cls in {
            "wandb": "WandbTracker",
            "tensorboard": "TensorBoardTracker",
            "mlflow": "MlflowTracker",
            "trackio": "TrackioTracker",
        }.items()
    }
)
"""Name, which is also that of the extra and of the package -> its class."""


def check_tracking(names: Sequence[str]) -> None:
    """Refuse a tracker that there is not, or one twice."""
    for name in names:
        if name not in TRACKERS and not is_own(name):
            raise ValueError(
                f"tracking: there is no tracker {name!r}{did_you_mean(name, TRACKERS)}; available: "
                f'{", ".join(TRACKERS)}, and your own as "module:Class"'
            )
        if names.count(name) > 1:
            raise ValueError(f"tracking names {name!r} twice")
