"""Write the exam papers that are committed: `python -m seedbench.envs.alfworld.freeze LIST.jsonl.xz` or `... mini`.

The first writes the manifest of the published games; LIST holds one JSON object a game, in exam order, with path,
split, task_type, task and the sha256 of its problem. The second writes the embedded games and their manifest. Each is
run once for a release of the games, and then only to prove that a file in the repository is what it says.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path

from seedbench.core import stream
from seedbench.envs import manifests
from seedbench.envs.alfworld import frozen
from seedbench.envs.alfworld.data import DOMAIN_SHA, ENV_ID, GRAMMAR_SHA, content_digest_of
from seedbench.envs.manifests import Row

SPLIT_OF = {"train": "train", "valid_seen": "seen", "valid_unseen": "unseen"}
DEV_SHARE = 20  # one task folder in so many


def is_dev(folder: str) -> bool:
    """Whether a task folder of train belongs to dev. All trials of a folder go the same way: they share a goal."""
    return stream("alfworld dev", folder) % DEV_SHARE == 0


def published_rows(listing: Path) -> Iterator[Row]:
    """The manifest's rows from the list of published games; valid_train, which nobody reports on, is left out."""
    with lzma.open(listing, "rt", encoding="utf-8") as lines:
        for game in map(json.loads, lines):
            if (split := SPLIT_OF.get(game["split"])) is None:
                continue
            if split == "train" and is_dev(game["path"].split("/")[2]):
                split = "dev"
            digest = content_digest_of(DOMAIN_SHA, GRAMMAR_SHA, game["task"], game["problem_sha256"])
            yield Row(game["path"], game["task_type"], split, digest)


def write_published(listing: Path, path: Path) -> None:
    """Write the manifest of the published set; the bytes are a function of the list."""
    header = {"env": ENV_ID, "set": "published", "domain_md5": DOMAIN_SHA, "grammar_md5": GRAMMAR_SHA}
    manifests.write(path, header, published_rows(listing))


def write_mini(listing: Path, games: Path) -> None:
    """Write the embedded set. Its games are an exam paper: once released they are never written again."""
    frozen.write_set(listing, games, prefix="mini", seed=0, level=2, sizes=frozen.MINI_SIZES)


def main(arguments: list[str]) -> None:
    """`LIST.jsonl.xz` writes the published manifest, `mini` the embedded games with theirs."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    committed = Path(manifests.__file__).parent
    if arguments[0] == "mini":
        write_mini(committed / f"{frozen.MINI}.jsonl.xz", Path(__file__).with_name("mini.jsonl.xz"))
    else:
        write_published(Path(arguments[0]), committed / "alfworld.jsonl.xz")


if __name__ == "__main__":
    main(sys.argv[1:])
