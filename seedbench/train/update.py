"""The update: a batch's rows to one or more optimizer steps, in passes that fit into memory, and its figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.core import SeedbenchError, stream
from seedbench.train.halving import in_passes
from seedbench.train.rows import Row, batch_of, deal, passes
from seedbench.train.share import Share

if TYPE_CHECKING:
    from seedbench.train.loop import Objective, Run


def update(run: Run, rows: list[Row], objective: Objective) -> dict[str, float]:
    """One or more optimizer steps over the rows. Rows without a gradient count in the loss's mean but are not computed;
    what is measured on the way (entropy, say) is a mean over the tokens that were."""
    args = run.args
    sums: dict[str, float] = {}
    norms: list[float] = []
    shares: list[float] = []
    for mine in _mini_batches(run, rows):
        tokens = run.ranks.sum([sum(len(r.completion_ids) for r in mine),
                                sum(len(r.completion_ids) for r in mine if r.logp_teacher)])  # fmt: skip
        if not tokens[0]:
            continue
        busy = [r for r in mine if r.advantage or args.kl or args.entropy or (r.logp_teacher and args.teaches)]
        own = _Passes(run, objective, int(tokens[0]), int(tokens[1]))
        own.backward(busy)
        _add(sums, own.sums)
        if own.share is not None:
            shares += own.share.of_the_rest()
        norms.append(_step(run))
        sums["tokens"] = sums.get("tokens", 0.0) + float(tokens[0])
    return _figures(run, sums, norms, shares)


def _mini_batches(run: Run, rows: list[Row]) -> Iterator[list[Row]]:
    """This rank's rows of each optimizer step, epoch after epoch; dealt over the rows of all ranks, or when packed,
    over their trajectories, which stay whole."""
    args = run.args
    depth = 2 if args.layout == "packed" else 3

    def unit(row: Row) -> tuple[int, ...]:
        return (row.group, row.trajectory, row.step)[:depth]

    # Numbered in order over all ranks' rows, so that the deal is the same however groups are shared out.
    number = {place: k for k, place in enumerate(sorted(set(run.ranks.gather([unit(row) for row in rows]))))}
    everyone = int(run.ranks.sum([len(rows)])[0])
    parts = max(1, round(everyone / args.mini_batch_rows)) if args.mini_batch_rows else args.mini_batches
    other = [args.deal_seed] if args.deal_seed else []
    for epoch in range(args.epochs):
        rng = np.random.default_rng(stream("deal", args.seed, *other, run.update, epoch))
        part = deal(len(number), parts, rng)
        for k in range(parts):
            yield [row for row in rows if part[number[unit(row)]] == k]


class _Passes:
    """The passes of one optimizer step and what they add up; `total` and `taught` tokens are all ranks'."""

    def __init__(self, run: Run, objective: Objective, total: int, taught: int):
        self.run, self.objective, self.total, self.taught = run, objective, total, taught
        self.sums: dict[str, float] = {}
        self.share = self._new_share()

    def backward(self, rows: list[Row]) -> None:
        """Leave the gradient of all rows in the weights."""
        run = self.run
        if not run.ranks.shards:
            run.budget = in_passes(run.policy, rows, run.budget, self._one, self._undo)
            return
        # Sharded layers gather in step: no rank may make more passes than another, or begin them again with smaller
        # ones when its memory alone runs out.
        work = list(passes(rows, run.args.token_budget, run.policy.packed))
        most = max(run.ranks.gather([len(work)]))  # asked before the passes, in which ranks gather otherwise
        for some in work:
            self._one(some)
        _keep_step(run, most - len(work))

    def _one(self, some: list[Row]) -> None:
        run = self.run
        batch = batch_of(some, self.total, self.taught, run.policy.model.device, run.update)
        loss, metrics = self.objective(run.policy, batch, run.args)
        part = metrics.pop("part", None)
        if self.share is not None and part is not None:
            self.share.add(part)
        loss.backward()
        run.optimizer.absorb()
        if not math.isfinite(value := float(loss.detach())):
            raise _broken(run, some, "the loss is not finite")
        _add(self.sums, {"loss": value * batch.total, "computed": len(batch.row), **metrics})

    def _undo(self) -> None:
        self.sums.clear()
        self.share = self._new_share()
        self.run.optimizer.forget()

    def _new_share(self) -> Share | None:
        return Share(self.run.optimizer, self.run.ranks) if self.run.args.shares(self.run.update) else None


def _figures(run: Run, sums: dict[str, float], norms: list[float], shares: list[float]) -> dict[str, float]:
    """Sums over the tokens of this rank to means over those of all ranks."""
    total = max(sums.pop("tokens", 0.0), 1.0)
    names = sorted({name for own in run.ranks.gather([list(sums)]) for name in own})  # a rank may have computed none
    summed = dict(zip(names, run.ranks.sum([sums.get(n, 0.0) for n in names]), strict=True))
    computed = max(summed.pop("computed", 0.0), 1.0)
    own = {n: summed.pop(n) for n in sorted(summed) if n.endswith("/of")}
    means = {n: v / max(own.get(n + "/of", total if n == "loss" else computed), 1.0) for n, v in summed.items()}
    if shares:
        means["part_share"] = float(np.mean(shares))
    return {
        "loss": 0.0,
        "kl": 0.0,
        **means,
        "grad_norm": float(np.mean(norms)) if norms else 0.0,
        "lr": _rate(run),
        "tokens": total,
    }


def _add(sums: dict[str, float], some: dict[str, Any]) -> None:
    for name, value in some.items():
        pair = {name: value[0], name + "/of": value[1]} if isinstance(value, tuple) else {name: value}
        for key, one in pair.items():
            sums[key] = sums.get(key, 0.0) + float(one)


def _rate(run: Run) -> float:
    rising = run.args.warmup * run.args.updates
    return run.args.lr * min(1.0, (run.update + 1) / rising if rising else 1.0)


def _step(run: Run) -> float:
    """Add up the ranks' gradients, clip, step. Returns the norm before clipping."""
    import torch

    weights = list(run.optimizer.masters.values())
    if not run.ranks.shards:  # FSDP2 has added them up in each backward pass
        run.ranks.sum_gradients(weights)
    found: Any = torch.nn.utils.clip_grad_norm_(weights, run.args.grad_clip)
    norm = float(found.full_tensor() if run.ranks.shards else found)
    if not math.isfinite(norm):
        raise _broken(run, [], "the gradient is not finite")
    run.optimizer.step(_rate(run))
    return norm


def _keep_step(run: Run, missing: int) -> None:
    """Sharded layers gather and reduce together, so a rank with fewer passes than another makes empty ones."""
    for _ in range(missing):
        logp, _ = run.policy.score([(0,)], [(0,)])
        (0.0 * logp.sum()).backward()
        run.optimizer.absorb()


def _broken(run: Run, rows: Sequence[Row], what: str) -> SeedbenchError:
    path = Path(run.args.out) / f"broken-update-{run.update + 1}.json"
    path.write_text(json.dumps([{"prompt_ids": r.prompt_ids, "completion_ids": r.completion_ids,
                                 "advantage": r.advantage} for r in rows]))  # fmt: skip
    return SeedbenchError(
        f"At update {run.update + 1} {what}: training stopped, the rows are in {path}, the last checkpoint stands; "
        "lower --lr, or go on from it with --resume."
    )
