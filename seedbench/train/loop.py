"""train(): sample a batch of episodes with the present weights, score it, update, log, save; again.

    for each update:  tasks -> play (context) -> rows -> advantages -> hindsight -> teacher's scores
                      for each epoch, mini-batch:  objective -> backward -> clip -> AdamW

Weights that sample are the weights that train: there is one model, and what was sampled comes back as the token ids
and log-probabilities that the loss is computed on.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench import record
from seedbench.agents.local import LocalAgent
from seedbench.core import Message, Sampling, SeedbenchError, Task, Trajectory, stream
from seedbench.exam import Config, Exam, plan
from seedbench.policy import loading
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.prompts import prompt_sha, sha256_json
from seedbench.rollout import Episode, play
from seedbench.train import checkpoint, folder
from seedbench.train.args import Args
from seedbench.train.log import FILE, Log, plot
from seedbench.train.memory import in_passes
from seedbench.train.ranks import Ranks
from seedbench.train.rows import Batch, Row, batch_of, deal, rows_of

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, "Tensor"]
Context = Callable[[Task], str]  # a hint the actor sees while playing (Skill-GRPO)
Hindsight = Callable[[HFPolicy, Sequence[Trajectory]], Sequence[str]]  # one the re-scoring teacher sees (SEED, SSPO)
Advantages = Callable[[Sequence[Row], Args], Sequence[float]]
Objective = Callable[[HFPolicy, Batch, Args], tuple["Tensor", Metrics]]


def plain(task: Task) -> str:
    """No hint."""
    return ""


@dataclass
class Run:
    """What an update works on; everything but the exam is in a checkpoint."""

    args: Args
    exam: Exam
    policy: HFPolicy
    optimizer: Any
    reference: HFPolicy | None
    ranks: Ranks
    update: int = 0
    cursor: int = 0  # training tasks drawn so far
    budget: int = 0  # tokens of a pass of the update: args.token_budget, or less after running out of memory


def train(
    args: Args,
    *,
    advantages: Advantages,
    objective: Objective,
    context: Context = plain,
    hindsight: Hindsight | None = None,
    resume: bool = False,
) -> Path:
    """Train and leave a model folder in args.out. Raises SeedbenchError; the last checkpoint then stands."""
    loading.require_train()
    if not args.out:
        raise SeedbenchError("--out is missing: name the folder to train into.")
    out = Path(args.out)
    if resume and folder.finished(out):
        return out
    if (out / FILE).exists() and not resume:
        raise SeedbenchError(f"{out} holds a run already: go on with --resume {out}, or name another --out.")
    ranks = Ranks()
    ranks.wait()  # all have looked whether a run is there before one begins it
    run = _open(args, out, resume, ranks)
    folder.make(out)
    if run.ranks.rank == 0:
        record.write_text(out / "train.json", args.dumps())
    with Log(out, run.update, args.updates, quiet=run.ranks.rank > 0) as log:
        while run.update < args.updates:
            started = time.perf_counter()
            trajectories, groups = _rollout(run, context)
            _some_ended(run, trajectories)
            played = time.perf_counter()
            rows = rows_of(trajectories, groups, args.reward, args.reward_scale)
            for row, value in zip(rows, advantages(rows, args), strict=True):
                row.advantage = value
            _score(run, rows)
            if hindsight is not None:
                _teach(run, rows, hindsight(run.policy, trajectories))
            scored = time.perf_counter()
            figures = _update(run, rows, objective, keep_idle=hindsight is not None)
            run.update += 1
            figures |= {"rollout_seconds": played - started, "score_seconds": scored - played,
                        "update_seconds": time.perf_counter() - scored}  # fmt: skip
            log.write(
                {
                    "update": run.update,
                    "processes": run.ranks.world,
                    **_played(run, trajectories, groups, rows),
                    **figures,
                }
            )
            if run.update % args.save_every == 0 and run.update < args.updates and run.ranks.rank == 0:
                checkpoint.save(out, run.policy, run.optimizer, {"update": run.update, "cursor": run.cursor})
        if run.ranks.rank == 0:
            plot(out / FILE)
            folder.finish(out, run.policy)
    run.ranks.wait()
    return out


def _open(args: Args, out: Path, resume: bool, ranks: Ranks) -> Run:
    import torch

    config = Config("train", env=args.env, split="train", data=args.data, max_steps=args.max_steps,
                    history=args.history, batch=args.slots)  # fmt: skip
    exams = plan(config)
    if len(exams) != 1:
        raise SeedbenchError("--env names several environments: train on one.")
    last = checkpoint.latest(out) if resume else None
    source = args.model if last is None else str(last)
    policy = load_policy(source, args.env, seed=args.seed, device=args.device, dtype=args.dtype, threads=args.threads)
    policy.token_budget = args.token_budget
    reference = None
    if args.kl:
        reference = load_policy(
            args.model, args.env, seed=args.seed, device=args.device, dtype=args.dtype, threads=args.threads
        )
    weights = [p for p in policy.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=args.lr, weight_decay=args.weight_decay)
    run = Run(args, exams[0], policy, optimizer, reference, ranks, budget=args.token_budget)
    if last is not None:
        state = checkpoint.restore(last, policy.model, optimizer)
        run.update, run.cursor = state["update"], state["cursor"]
    return run


def _tasks(run: Run, n: int) -> list[Task]:
    """The next `n` training tasks; every task comes once before any comes twice, in an order drawn by the seed."""
    pool = run.exam.tasks["train"]
    chosen = []
    for k in range(run.cursor, run.cursor + n):
        epoch, at = divmod(k, len(pool))
        order = np.random.default_rng(stream("train-order", run.args.seed, epoch)).permutation(len(pool))
        chosen.append(pool[int(order[at])])
    run.cursor += n
    return chosen


def _rollout(run: Run, context: Context) -> tuple[list[Trajectory], list[int]]:
    """This rank's share of the update's groups, in order of group and trial."""
    args = run.args
    agent = LocalAgent("policy", run.policy, batch=args.slots)
    agent.sampling = Sampling(args.temperature, 1.0, args.max_new_tokens)
    seed = stream("train", args.seed, run.update)
    tasks = _tasks(run, args.tasks)
    place = {}
    episodes = []
    for g in range(run.ranks.rank, len(tasks), run.ranks.world):
        hint = context(tasks[g])
        for trial in range(args.group):
            number = trial + args.group * sum(t.id == tasks[g].id for t in tasks[:g])
            place[tasks[g].id, number] = g
            episodes.append(Episode(tasks[g], seed, number, hint))
    done = list(play(run.exam.make, episodes, agent, slots=args.slots, prompt=run.exam.prompt))
    done.sort(key=lambda t: (place[t.task.id, t.trial], t.trial))
    return done, [place[t.task.id, t.trial] for t in done]


def _some_ended(run: Run, trajectories: list[Trajectory]) -> None:
    """Raises SeedbenchError when no episode of any rank came to its end: then nothing can be learned, now or later."""
    lost = [t for t in trajectories if t.ended == "error"]
    everyone, errors = run.ranks.sum([len(trajectories), len(lost)])
    if everyone == errors:
        first = f", the first {lost[0].task.id}: {lost[0].error.rstrip('.')}" if lost else ""
        raise SeedbenchError(
            f"At update {run.update + 1} all {everyone:.0f} episodes ended in an error{first}; the last checkpoint "
            "stands: mend that and go on from it with --resume."
        )


def _score(run: Run, rows: list[Row]) -> None:
    """The reference model's log-probabilities, where there is one; logp_old is what the sampler recorded."""
    if run.reference is None:
        return
    scored = run.reference.logprobs(
        [r.prompt_ids for r in rows], [r.completion_ids for r in rows], temperature=run.args.temperature
    )
    for row, values in zip(rows, scored, strict=True):
        row.logp_ref = values


def _teach(run: Run, rows: list[Row], hints: Sequence[str]) -> None:
    """Score the same sampled tokens after the prompt with the trajectory's hint in its slot."""
    told = [row for row in rows if hints[row.trajectory]]
    prompts = [run.policy.encode(_hinted(run, row, hints[row.trajectory])) for row in told]
    scored = run.policy.logprobs(prompts, [r.completion_ids for r in told], temperature=run.args.temperature)
    for row, values in zip(told, scored, strict=True):
        row.logp_teacher = values


def _hinted(run: Run, row: Row, hint: str) -> list[Message]:
    """The row's prompt with `hint` in its slot, where the actor may have seen another or none."""
    return run.exam.prompt.render(dataclasses.replace(row.view, hint=""), hint)


def _update(run: Run, rows: list[Row], objective: Objective, keep_idle: bool) -> dict[str, float]:
    """One or more optimizer steps over the rows. Rows without advantage count in the loss's mean but are not computed;
    what is measured on the way (entropy, say) is a mean over the tokens that were."""
    args, model = run.args, run.policy.model
    sums: dict[str, float] = {}
    norms: list[float] = []
    counts = run.ranks.gather([len(rows)])
    first, everyone = sum(counts[: run.ranks.rank]), sum(counts)
    for epoch in range(args.epochs):
        rng = np.random.default_rng(stream("deal", args.seed, run.update, epoch))
        part = deal(everyone, args.mini_batches, rng)[first : first + len(rows)]
        for k in range(args.mini_batches):
            mine = [row for row, p in zip(rows, part, strict=True) if p == k]
            tokens = run.ranks.sum([sum(len(r.completion_ids) for r in mine),
                                    sum(len(r.completion_ids) for r in mine if r.logp_teacher)])  # fmt: skip
            if not tokens[0]:
                continue
            busy = [r for r in mine if r.advantage or keep_idle or args.entropy or args.kl]
            own: dict[str, float] = {}

            def one(some: list[Row], tokens: list[float] = tokens, own: dict[str, float] = own) -> None:
                batch = batch_of(some, int(tokens[0]), int(tokens[1]), model.device)
                loss, metrics = objective(run.policy, batch, args)
                loss.backward()
                if not math.isfinite(value := float(loss.detach())):
                    raise _broken(run, some, "the loss is not finite")
                _add(own, {"loss": value * batch.total, "computed": len(batch.row), **metrics})

            def undo(own: dict[str, float] = own) -> None:
                own.clear()
                run.optimizer.zero_grad(set_to_none=True)

            run.budget = in_passes(run.policy, busy, run.budget, one, undo)
            _add(sums, own)
            norms.append(_step(run))
            sums["tokens"] = sums.get("tokens", 0.0) + float(tokens[0])
    total = max(sums.pop("tokens", 0.0), 1.0)
    names = sorted({name for own in run.ranks.gather([list(sums)]) for name in own})  # a rank may have computed none
    summed = dict(zip(names, run.ranks.sum([sums.get(n, 0.0) for n in names]), strict=True))
    computed = max(summed.pop("computed", 0.0), 1.0)
    means = {n: v / (total if n == "loss" else computed) for n, v in summed.items()}
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
        sums[name] = sums.get(name, 0.0) + float(value)


def _rate(run: Run) -> float:
    rising = run.args.warmup * run.args.updates
    return run.args.lr * min(1.0, (run.update + 1) / rising if rising else 1.0)


def _step(run: Run) -> float:
    """Add up the ranks' gradients, clip, step. Returns the norm before clipping."""
    import torch

    weights = [p for p in run.policy.model.parameters() if p.requires_grad]
    run.ranks.sum_gradients(weights)
    norm = float(torch.nn.utils.clip_grad_norm_(weights, run.args.grad_clip))
    if not math.isfinite(norm):
        raise _broken(run, [], "the gradient is not finite")
    for group in run.optimizer.param_groups:
        group["lr"] = _rate(run)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return norm


def _broken(run: Run, rows: Sequence[Row], what: str) -> SeedbenchError:
    path = Path(run.args.out) / f"broken-update-{run.update + 1}.json"
    path.write_text(json.dumps([{"prompt_ids": r.prompt_ids, "completion_ids": r.completion_ids,
                                 "advantage": r.advantage} for r in rows]))  # fmt: skip
    return SeedbenchError(
        f"At update {run.update + 1} {what}: training stopped, the rows are in {path}, the last checkpoint stands; "
        "lower --lr, or go on from it with --resume."
    )


def _played(run: Run, trajectories: list[Trajectory], groups: list[int], rows: list[Row]) -> dict[str, Any]:
    """What the update's episodes were like, over all ranks."""
    spread: dict[int, set[float]] = {}
    for row in rows:
        spread.setdefault(row.group, set()).add(row.reward)
    mine = [
        len(trajectories), sum(t.success for t in trajectories), math.fsum(t.score for t in trajectories),
        sum(len(t.steps) for t in trajectories), len(rows), sum(not r.format_valid for r in rows),
        math.fsum({r.trajectory: r.reward for r in rows}.values()), len(set(groups)),
        sum(len(s) == 1 for s in spread.values()), sum(t.ended == "error" for t in trajectories),
    ]  # fmt: skip
    n, won, score, steps, asked, invalid, reward, of, flat, errors = run.ranks.sum(mine)
    prompts = run.ranks.gather([(r.group, r.trajectory, r.step, prompt_sha(r.view.messages)) for r in rows])
    return {
        "success": won / n, "score": score / n, "reward": reward / n, "episode_steps": steps / n,
        "invalid_rate": invalid / max(asked, 1), "flat_groups": flat / of, "errors": errors, "rows": asked,
        "prompt_digest": sha256_json([sha for _, _, _, sha in sorted(prompts)]),
    }  # fmt: skip
