"""Which GPUs of this machine the engines of `cluster.type=local` get.

A learner of `training.shards` processes has the first GPUs. Engines use the same ones, or those
after them (`cluster.shared`).
"""

from __future__ import annotations

import logging
import os

import torch

from agentgym_rl.config import RunConfig, VllmEngineConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.device import choose_device

logger = logging.getLogger(__name__)


def engine_gpus(config: RunConfig) -> list[tuple[str, ...]]:
    """Return the GPUs of each engine, as CUDA_VISIBLE_DEVICES names them; none on a CPU.

    Raises ConfigError where there are too few.
    """
    cluster, engine = config.cluster, config.engine
    if choose_device(config.model.device).type != "cuda":
        return [()] * cluster.engines
    width = engine.tensor_parallel_size if isinstance(engine, VllmEngineConfig) else 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    num_learners = config.training.shards
    usable = names[:num_learners] if cluster.shared else names[num_learners:]
    if cluster.shared and config.rollout.overlap:
        logger.warning(
            "rollout.overlap=true on the learner's GPUs: generation and updates hold each other "
            "up, and steps may take longer than without (docs/training.md); on GPUs of their own "
            "(cluster.shared=false) they do not"
        )
    if len(usable) < cluster.engines * width:
        where = "the learner's GPUs" if cluster.shared else "the GPUs after the learner's"
        raise ConfigError(
            f"cluster.engines={cluster.engines} needs {cluster.engines * width} of {where}; "
            f"available: {len(usable)} (training.shards={num_learners}, GPUs: {len(names)}): lower "
            f"cluster.engines, or set cluster.shared={str(not cluster.shared).lower()}"
        )
    return [tuple(usable[n * width : (n + 1) * width]) for n in range(cluster.engines)]
