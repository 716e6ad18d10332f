"""Scripted shoppers on a generated shop: floors, and what knowing the paraphrases is worth.

    python benchmarks/webshop_shoppers.py [--data mini] [--split train,dev,seen,unseen]

Success and, in brackets, mean score, in percent. None of the shoppers sees the goal (seedbench.envs.webshop.shoppers).
"""

from __future__ import annotations

import argparse

from seedbench.envs.webshop.data import open_dataset
from seedbench.envs.webshop.shoppers import SHOPPERS, outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mini", help="mini, or a folder that `data generate webshop` made")
    parser.add_argument("--split", default="train,dev,seen,unseen")
    options = parser.parse_args()
    dataset = open_dataset(options.data)
    print(f"| split | goals | {' | '.join(SHOPPERS)} |\n|---|---|{'---|' * len(SHOPPERS)}")
    for split in options.split.split(","):
        tasks = dataset.tasks(split)
        found = [outcomes(dataset, tasks, how)["all"] for how in SHOPPERS]
        cells = " | ".join(f"{100 * o.success:.1f} ({100 * o.score:.1f})" for o in found)
        print(f"| {split} | {len(tasks)} | {cells} |")


if __name__ == "__main__":
    main()
