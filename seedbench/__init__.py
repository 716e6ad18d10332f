"""seedbench: train and measure language-model agents on long-horizon tasks.

Importing it registers the environments with Gymnasium; `seedbench --help` shows the rest.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

__version__ = "0.1.0"

# By string: the core knows no environment, and nothing heavy is imported until one is made.
register(id="seedbench/ALFWorld-v0", entry_point="seedbench.envs.alfworld.env:ALFWorldEnv", order_enforce=False)
