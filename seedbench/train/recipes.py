"""Recipes: settings of a run as JSON files. Those that ship are found by name."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from seedbench.core import SeedbenchError


def find(name_or_file: str) -> Path:
    """The file of a recipe: one here, or one that ships under that name. Raises SeedbenchError with their names."""
    if os.path.isfile(name_or_file):
        return Path(name_or_file)
    if name_or_file in (known := names()):
        return _folder() / f"{name_or_file}.json"
    raise SeedbenchError(f"--recipe {name_or_file} is no file here and none that ships: those are {', '.join(known)}.")


def names(page: str = "") -> list[str]:
    """The recipes that ship: those of one algorithm, or all."""
    return sorted(path.stem for path in _folder().glob(f"{page.replace('_', '-')}*.json"))


def _folder() -> Path:
    return Path(str(resources.files("seedbench.baselines"))) / "recipes"
