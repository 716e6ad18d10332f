"""What the habits are worth: scripted searchers on the embedded games, with and without knowing them.

    python benchmarks/alfworld_habits.py [--data mini] [--split train,seen,unseen] [--steps 14]

Exit code 0 if the searcher that knows the habits beats the one that looks in listed order by 20 points of success on
every split. Printed beside them: what other fixed orders give (random, open places first, backwards), which an agent
could find without learning any habit, and the oracle, which knows where the thing is.
"""

from __future__ import annotations

import argparse
import sys

from seedbench.envs.alfworld.data import open_dataset
from seedbench.envs.alfworld.search import ORDERS, success

NEEDED = 0.20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mini")
    parser.add_argument("--split", default="train,dev,seen,unseen")
    parser.add_argument("--steps", type=int, help="step limit; the set's own by default")
    options = parser.parse_args()
    dataset = open_dataset(options.data)
    steps = options.steps or dataset.default_max_steps
    print(f"success within {steps} steps")
    print(f"{'split':<8}{'games':>6}" + "".join(f"{how:>11}" for how in ORDERS) + f"{'gap':>8}")
    enough = True
    for split in options.split.split(","):
        tasks = dataset.tasks(split)
        rates = {how: success(dataset, tasks, how, steps) for how in ORDERS}
        gap = rates["habits"] - rates["listed"]
        enough = enough and gap >= NEEDED
        print(f"{split:<8}{len(tasks):>6}" + "".join(f"{rates[how]:>11.1%}" for how in ORDERS) + f"{gap:>8.1%}")
    return int(not enough)


if __name__ == "__main__":
    sys.exit(main())
