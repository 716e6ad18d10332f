"""How much of a batch's gradient is signal, and does a method point where the reward does? To ask before long runs.

    python -m seedbench.baselines.signal --model tiny --batches 64 --work runs/signal --out signal.json
        --checkpoints runs/grpo/checkpoints/000020,runs/grpo
    python -m seedbench.baselines.signal --page sspo --env deepsearch --model tiny --out signal.json

At each checkpoint, on the same `batches` independent batches, the gradients of the terms of baselines/gradients.py or,
for SSPO, gradients_sspo.py, and of their dot products the figures of baselines/gram.py. Gradients stay in --work, so
the same call goes on where it was killed, and two calls for two checkpoints may share the folder; --out holds every dot
product and so all that the figures are made of. For policies of at most some million parameters: terms x batches x
parameters x 4 bytes.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from seedbench.baselines import gram
from seedbench.baselines.anchors import store
from seedbench.baselines.probe import Options, Page
from seedbench.core import SeedbenchError, stream
from seedbench.policy.fresh import load_policy
from seedbench.prompts import sha256_json
from seedbench.rollout import Episode
from seedbench.train.args import Args
from seedbench.train.hints import SeedArgs, SspoArgs

if TYPE_CHECKING:
    from seedbench.baselines.player import Player
    from seedbench.policy.hf import HFPolicy

Terms = Callable[..., tuple[np.ndarray, dict[str, float]]]  # as `terms` of baselines/gradients.py
PASS = 4096  # tokens of a pass: five backward passes over what fits the processor's cache
MOST = 8 << 30  # bytes of gradients that are held at once
ANY = ("model", "out", "device", "threads", "slots", "token_budget")  # settings of a batch that do not change it
ONLY: Mapping[str, tuple[str, ...]] = {
    "seed": ("beta_opd", "analysis_tokens"),
    "sspo": ("privileged", "anchors", "teacher"),
}  # options of one page


def checkpoint(
    args: SeedArgs | SspoArgs, batches: int, work: Path, part: tuple[int, int] | None = None, teacher: str = ""
) -> dict[str, Any]:
    """Measure what is left of one model's batches; its dot products, figures and what the batches were like.

    With `part` = (k, n) only batches k, k + n, ... are measured, and nothing is returned.
    """
    from seedbench.baselines.player import Player

    page, player = _page(args.page), Player(args)
    size = sum(p.numel() for p in player.policy.model.parameters() if p.requires_grad)
    if (need := batches * len(page.TERMS) * size * 4) > MOST:
        raise SeedbenchError(
            f"{args.model} has {size:,} parameters, whose gradients of {batches} batches take "
            f"{need / 2**30:.0f} GiB (at most {MOST >> 30}): take fewer --batches or a smaller one."
        )
    other = _teacher(teacher, player) if teacher else None
    terms: Terms = partial(page.terms, teacher=other) if other else page.terms
    revision = player.policy.describe()["revision"]
    settings = {k: v for k, v in json.loads(args.dumps()).items() if k not in ANY}
    folder = work / sha256_json([revision, player.exam.protocol, settings, *_told(args, other)])[:16]
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:04d}.npz" for number in range(batches)]
    first, step = part or (0, 1)
    for number in range(first, batches, step):
        if not files[number].is_file():
            _save(files[number], *measure(player, args, number, terms))
            print(f"{args.model}: batch {number} of {batches} measured", file=sys.stderr, flush=True)
    if part:
        return {}
    held = [_load(file) for file in files]
    one = {
        "model": args.model,
        "revision": revision,
        "teacher": other.describe()["revision"] if other else revision,
        "parameters": size,
        "terms": list(page.TERMS),
        "differences": page.DIFFERENCES,
        "lambdas": list(page.LAMBDAS),
        "batches": [figures for _, figures in held],
    }
    dots = gram.gram([gradient for gradient, _ in held])
    return one | {"figures": _figures(dots, one, args.seed), "gram": gram.packed(dots)}


def _page(name: str) -> Any:
    """The module with a page's terms."""
    from seedbench.baselines import gradients, gradients_sspo

    return gradients_sspo if name == "sspo" else gradients


def _teacher(source: str, player: Player) -> HFPolicy:
    """Weights that score in the place of the player's. Raises SeedbenchError where they read other tokens."""
    args = player.args
    found = load_policy(source, args.env, seed=args.seed, device=args.device, dtype="float32", threads=args.threads,
                        thinking=args.thinking)  # fmt: skip
    if found.tokenizer.get_vocab() != player.policy.tokenizer.get_vocab():
        raise SeedbenchError(f"--teacher {source} has another tokenizer than {args.model}: name an older copy of it.")
    found.token_budget = args.token_budget
    return found


def _told(args: SeedArgs | SspoArgs, teacher: HFPolicy | None) -> Iterator[str]:
    """What else a batch's gradients follow from."""
    if isinstance(args, SspoArgs) and args.anchors:
        yield sha256_json([(id, *anchors) for id, anchors in sorted(store.read(Path(args.anchors)).items())])
    if teacher is not None:
        yield teacher.describe()["revision"]


def measure(player: Player, args: Args, number: int, terms: Terms) -> tuple[np.ndarray, dict[str, float]]:
    """Batch `number`, independent of every other: its (K, P) gradients in the order of TERMS, and what it was like."""
    tasks = player.draw(args.tasks, "signal-tasks", args.seed, number)
    seed = stream("signal", args.seed, number)
    played = player.play([Episode(task, seed, k) for task in tasks for k in range(args.group)])
    return terms(player, args, played, [g for g in range(args.tasks) for _ in range(args.group)], number)


def _save(file: Path, gradient: np.ndarray, figures: dict[str, float]) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    with part.open("wb") as f:
        np.savez(f, gradient=gradient, names=np.array(list(figures)), values=np.array(list(figures.values())))
    os.replace(part, file)


def _load(file: Path) -> tuple[np.ndarray, dict[str, float]]:
    try:
        with np.load(file, allow_pickle=False) as held:
            figures = dict(zip(held["names"].tolist(), held["values"].tolist(), strict=True))
            return held["gradient"], figures
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SeedbenchError(f"{file} cannot be read ({error}): delete it, and the same call makes it anew.") from error


def _figures(dots: np.ndarray, one: dict[str, Any], seed: int) -> dict[str, Any]:
    whole = gram.extended(dots, one["terms"], one["differences"])
    return gram.plain(gram.report(whole, [*one["terms"], *one["differences"]], seed, one["lambdas"]))


def recomputed(one: dict[str, Any], seed: int) -> dict[str, Any]:
    """A checkpoint's figures from the dot products that --out holds."""
    return _figures(gram.unpacked(one["gram"], len(one["terms"])), one, seed)


def table(result: dict[str, Any]) -> str:
    """All checkpoints' figures as text."""
    beside = _page(result["settings"]["page"]).BESIDE
    lines = [line for one in result["checkpoints"] for line in (*gram.lines(one, beside), "")]
    lines.append("figure [95 % bootstrap interval over batches]; term/pg: roots of the mean squared norms of batches")
    return "\n".join(lines)


def _part(said: str) -> tuple[int, int]:
    try:
        first, step = map(int, said.split("/"))
    except ValueError:
        first, step = -1, 0
    if not 0 <= first < step:
        raise SeedbenchError(f"--part is {said}: give K/N with K from 0 up and below N.")
    return first, step


@dataclass(frozen=True)
class SignalOptions(Options):
    """Signal share, direction and size of the gradients of GRPO, of SEED or SSPO, and of controls."""

    model: str
    """The first checkpoint: fresh, tiny, a folder or a hub id."""
    out: Path
    """JSON file to write: every dot product, the figures, what the batches were like."""
    page: Page = "seed"
    """Whose terms."""
    work: Path = Path("runs/signal")
    """Folder that keeps gradients, so that the same call goes on."""
    checkpoints: str = ""
    """Further model folders, with commas between them."""
    batches: int = 64
    """Independent batches; tasks are drawn anew for each."""
    part: str = ""
    """K/N: measure batches K, K + N, ... alone and write no --out, for N processes side by side (K from 0); the same
    call without it then puts them together."""
    tasks: int = 8
    """Tasks of a batch."""
    group: int = 8
    """Episodes of each task."""
    seed: int = 0
    """Seed of tasks, sampled tokens, what is shuffled and bootstrap; the same batches at every checkpoint."""
    beta_opd: float = 5.0
    """SEED: slope of the gate."""
    analysis_tokens: int = 128
    """SEED: longest lesson that the policy writes."""
    privileged: Literal["both", "anchors", "answer", "none"] = "both"
    """SSPO: what the teacher is told, as in `seedbench train sspo`."""
    anchors: str = ""
    """SSPO: file of anchors; by default the environment's own evidence."""
    teacher: str = ""
    """SSPO: folder of the teacher at every checkpoint, an older copy; by default the checkpoint's own weights."""

    def __post_init__(self) -> None:
        if self.batches < 3:
            raise SeedbenchError(f"--batches is {self.batches}: pairs of different batches need 3 or more.")
        usual = {f.name: f.default for f in fields(self)}
        for page, names in ONLY.items():
            if page != self.page and (given := [n for n in names if getattr(self, n) != usual[n]]):
                raise SeedbenchError(f"--{given[0].replace('_', '-')} is an option of --page {page}: leave it out.")

    def every(self) -> list[SeedArgs | SspoArgs]:
        """The settings of each checkpoint."""
        own = {name: getattr(self, name) for name in ONLY[self.page] if name != "teacher"}
        own |= {"group": self.group, "token_budget": PASS}
        first = self.settings(SspoArgs, **own) if self.page == "sspo" else self.settings(SeedArgs, **own)
        return [first, *(replace(first, model=one) for one in self.checkpoints.split(",") if one)]


def main(options: SignalOptions) -> None:
    """Measure, write and print."""
    share = _part(options.part) if options.part else None
    every = options.every()
    said = {k: v for k, v in json.loads(every[0].dumps()).items() if k not in ANY}
    if not share:
        options.writable()
    held = [checkpoint(args, options.batches, options.work, share, options.teacher) for args in every]
    if share:
        return
    result = {"settings": said, "checkpoints": held}
    options.write(result)
    print(table(result))


if __name__ == "__main__":
    try:
        main(tyro.cli(SignalOptions))
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
