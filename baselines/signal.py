"""How much of a batch's gradient is signal, and does distillation point where the reward does? To ask before long runs.

    python -m seedbench.baselines.signal --model tiny --batches 64 --work runs/signal --out signal.json
        --checkpoints runs/grpo/checkpoints/000020,runs/grpo

At each checkpoint, on the same `batches` independent batches, the gradients of the terms of baselines/gradients.py, and
of their dot products the figures of baselines/gram.py. Gradients stay in --work, so the same call goes on where it was
killed, and two calls for two checkpoints may share the folder; --out holds every dot product and so all that the
figures are made of. For policies of at most some million parameters: terms x batches x parameters x 4 bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from seedbench.baselines import gram
from seedbench.core import SeedbenchError
from seedbench.prompts import sha256_json
from seedbench.train.hints import SeedArgs, SspoArgs

PASS = 4096  # tokens of a pass: five backward passes over what fits the processor's cache
MOST = 8 << 30  # bytes of gradients that are held at once
LAMBDAS = (0.01, 0.1, 1.0)
ANY = ("model", "out", "device", "threads", "slots", "token_budget")  # settings of a batch that do not change it


def checkpoint(
    args: SeedArgs | SspoArgs, batches: int, work: Path, part: tuple[int, int] | None = None, teacher: str = ""
) -> dict[str, Any]:
    """Measure what is left of one model's batches; its dot products, figures and what the batches were like.

    With `part` = (k, n) only batches k, k + n, ... are measured, and nothing is returned. `teacher` names SSPO's, where
    it is not the model itself.
    """
    from seedbench.baselines import gradients, gradients_sspo
    from seedbench.baselines.player import Player

    player, terms, names = Player(args), gradients.terms, gradients.TERMS
    settings = {k: v for k, v in json.loads(args.dumps()).items() if k not in ANY}
    if isinstance(args, SspoArgs):
        other = Player(dataclasses.replace(args, model=teacher)).policy if teacher else None
        terms, names = partial(gradients_sspo.terms, teacher=other), gradients_sspo.TERMS
        settings |= {"teacher": other.describe()["revision"]} if other else {}
    size = sum(p.numel() for p in player.policy.model.parameters() if p.requires_grad)
    if (need := batches * len(names) * size * 4) > MOST:
        raise SeedbenchError(
            f"{args.model} has {size:,} parameters, whose gradients of {batches} batches take "
            f"{need / 2**30:.0f} GiB (at most {MOST >> 30}): take fewer --batches or a smaller one."
        )
    revision = player.policy.describe()["revision"]
    folder = work / sha256_json([revision, player.exam.protocol, settings])[:16]
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:04d}.npz" for number in range(batches)]
    first, step = part or (0, 1)
    for number in range(first, batches, step):
        if not files[number].is_file():
            _save(files[number], *gradients.measure(player, args, number, terms))
            print(f"{args.model}: batch {number} of {batches} measured", file=sys.stderr, flush=True)
    if part:
        return {}
    held = [_load(file) for file in files]
    found, told = [gradient for gradient, _ in held], [figures for _, figures in held]
    dots = gram.gram(found)
    return {
        "model": args.model,
        "revision": revision,
        "parameters": size,
        "terms": list(names),
        "batches": told,
        "figures": gram.plain(gram.report(dots, names, args.seed, LAMBDAS)),
        "gram": gram.packed(dots),
    }


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


def recomputed(one: dict[str, Any], seed: int) -> dict[str, Any]:
    """A checkpoint's figures from the dot products that --out holds."""
    dots = gram.unpacked(one["gram"], len(one["terms"]))
    return gram.plain(gram.report(dots, one["terms"], seed, LAMBDAS))


def table(result: dict[str, Any]) -> str:
    """All checkpoints' figures as text."""
    lines = []
    for one in result["checkpoints"]:
        mean = {k: float(np.mean([b[k] for b in one["batches"]])) for k in one["batches"][0]}
        other = "fixed" if "fixed" in one["terms"] else "sspo"
        lines += [
            f"{one['model']}: {len(one['batches'])} batches, success {mean['success']:.3f}, "
            + (f"parse rate {mean['parse_rate']:.3f}, " if "parse_rate" in mean else "")
            + f"rows with an advantage {mean['with_advantage']:.3f}",
            f"{'term':9} {'signal share':26} {'cosine with pg':26} {'cosine with ' + other:26} coverage  "
            + "  ".join(f"|{w:g} term|/|pg|" for w in LAMBDAS),
        ]
        for term, figures in one["figures"].items():
            known = {name: gram.Figure(**f) for name, f in figures.items()}
            cells = [str(known[n]) if n in known else "-" for n in ("signal", "cosine:pg", f"cosine:{other}")]
            sizes = [known[f"size@{w:g}"].value for w in LAMBDAS if f"size@{w:g}" in known]
            covered = f"{mean[f'coverage:{term}']:.3f}" if f"coverage:{term}" in mean else "-"
            lines.append(f"{term:9} " + " ".join(f"{c:26}" for c in cells) + f" {covered:8}  "
                         + "  ".join(f"{'-' if s is None else format(s, '.4f'):>14}" for s in sizes))  # fmt: skip
        lines.append("")
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


def main(
    model: str,
    out: Path,
    work: Path = Path("runs/signal"),
    checkpoints: str = "",
    page: Literal["seed", "sspo"] = "seed",
    teacher: str = "",
    env: str = "alfworld",
    data: str = "mini",
    batches: int = 64,
    part: str = "",
    tasks: int = 8,
    group: int = 8,
    seed: int = 0,
    beta_opd: float = 5.0,
    max_new_tokens: int = 64,
    analysis_tokens: int = 128,
    max_steps: int | None = None,
    slots: int = 64,
    device: str = "auto",
    threads: int = 0,
) -> None:
    """Signal share, direction and size of the gradients of GRPO, of SEED or SSPO, and of their controls.

    Args:
        model: The first checkpoint: fresh, tiny, a folder or a hub id.
        out: JSON file to write: every dot product, the figures, what the batches were like.
        work: Folder that keeps gradients, so that the same call goes on.
        checkpoints: Further model folders, with commas between them.
        page: Whose terms: see baselines/gradients.py and gradients_sspo.py.
        teacher: SSPO's teacher: a model folder; by default each checkpoint itself, as just after a copy.
        env: Which environment, by its short name.
        data: mini, or the folder of published files.
        batches: Independent batches; tasks are drawn anew for each.
        part: K/N: measure batches K, K + N, ... alone and write no --out, for N processes side by side (K from 0); the
            same call without it then puts them together.
        tasks: Tasks of a batch.
        group: Episodes of each task.
        seed: Seed of tasks, sampled tokens, shuffled skills and bootstrap; the same batches at every checkpoint.
        beta_opd: Slope of SEED's gate.
        max_new_tokens: Longest reply.
        analysis_tokens: Longest lesson that the policy writes for SEED.
        max_steps: Step limit of an episode; by default the environment's.
        slots: Episodes under way at a time.
        device: auto, cpu or cuda.
        threads: PyTorch's CPU threads; 0 chooses.
    """
    if batches < 3:
        raise SeedbenchError(f"--batches is {batches}: pairs of different batches need 3 or more.")
    share = _part(part) if part else None
    models: Sequence[str] = [model, *filter(None, checkpoints.split(","))]
    given = {"env": env, "data": data, "tasks": tasks, "group": group, "seed": seed, "max_new_tokens": max_new_tokens,
             "max_steps": max_steps, "slots": slots, "device": device, "threads": threads,
             "token_budget": PASS}  # fmt: skip
    if page == "seed":
        if teacher:
            raise SeedbenchError("--teacher is SSPO's: add --page sspo, or leave it out.")
        given |= {"beta_opd": beta_opd, "analysis_tokens": analysis_tokens}
    kind: type[SeedArgs | SspoArgs] = SspoArgs if page == "sspo" else SeedArgs
    settings = [kind(model=one, **given) for one in models]  # type: ignore[arg-type]
    said = {k: v for k, v in json.loads(settings[0].dumps()).items() if k not in ANY}
    result = {"settings": said, "checkpoints": [checkpoint(args, batches, work, share, teacher) for args in settings]}
    if share:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
