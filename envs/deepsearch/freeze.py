"""Write the embedded set: `python -m seedbench.envs.deepsearch.freeze`.

It is an exam paper: run once for a release of the set, and then only to prove that the files in the repository are what
they say.
"""

from __future__ import annotations

from pathlib import Path

from seedbench.envs import manifests
from seedbench.envs.deepsearch import mini
from seedbench.envs.deepsearch.generate import SIZES


def write_mini(listing: Path, pack: Path) -> None:
    """Write the manifest and the pack of the embedded set, whose passages are search-QA's."""
    mini.write_set(listing, pack, prefix="deepsearch-mini", seed=0, level=2, sizes=SIZES, passages=False)


if __name__ == "__main__":
    write_mini(Path(manifests.__file__).with_name(f"{mini.LISTED}.jsonl.xz"), Path(__file__).with_name("mini.jsonl.xz"))
