"""One run put together, from a recipe or from objects, and trained.

The command line and `agentgym_rl.train` both call `train`. Nothing here decides anything that
neither the recipe says nor an object is.
"""

from agentgym_rl.experiment.run import supervised_config, train

__all__ = ["supervised_config", "train"]
