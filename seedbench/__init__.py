"""seedbench: train and measure language-model agents on long-horizon tasks.

Importing it registers the environments with Gymnasium; `seedbench --help` shows the rest.
"""

from __future__ import annotations

from pathlib import Path

from gymnasium.envs.registration import register

__version__ = "0.1.0"

# In a checkout the folders beside this one are its subpackages (seedbench.envs is envs/). Whoever runs from there, with
# another copy installed or none at all, gets the checkout's own.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "envs").is_dir():
    __path__.append(str(_root))

# By string: the core knows no environment, and nothing heavy is imported until one is made.
register(id="seedbench/ALFWorld-v0", entry_point="seedbench.envs.alfworld.env:ALFWorldEnv", order_enforce=False)
register(id="seedbench/WebShop-v0", entry_point="seedbench.envs.webshop.env:WebShopEnv", order_enforce=False)
register(id="seedbench/SearchQA-v0", entry_point="seedbench.envs.searchqa.env:SearchQAEnv", order_enforce=False)
register(id="seedbench/DeepSearch-v0", entry_point="seedbench.envs.deepsearch.env:DeepSearchEnv", order_enforce=False)
