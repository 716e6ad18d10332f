"""train(): sample a batch of episodes with the present weights, score it, update, log, save; again.

    for each update:  tasks -> play (context) -> rows -> advantages -> hindsight -> teacher's scores
                      for each epoch, mini-batch:  objective -> backward -> clip -> AdamW

Weights that sample are the weights that train: there is one model (or an engine that is sent its weights before every
batch, see seedbench.train.sampler), and what was sampled comes back as the token ids and log-probabilities that the
loss is computed on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seedbench.agents.local import LocalAgent
from seedbench.core import Sampling, SeedbenchError, Task, Trajectory, stream
from seedbench.exam import Config, Exam, plan
from seedbench.policy import adapter, loading
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.fit import fit
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.policy.vllm import Engine
from seedbench.prompts import prompt_sha, sha256_json
from seedbench.rollout import Episode, play
from seedbench.train import checkpoint, shard
from seedbench.train.args import Args
from seedbench.train.log import FILE, Log, plot
from seedbench.train.optimizer import Optimizer
from seedbench.train.ranks import Ranks
from seedbench.train.rows import Batch, Row, batch_of, deal, earned, passes, rows_of
from seedbench.train.sampler import open_sampler, refresh, rescore
from seedbench.train.share import Share
from seedbench.train.track import open_tracker

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, Any]  # sums over the pass's tokens; a pair is a sum and the count that it is to be divided by
Context = Callable[[Task], str]  # a hint the actor sees while playing (Skill-GRPO)
Advantages = Callable[[Sequence[Row], Args], Sequence[float]]
Objective = Callable[[HFPolicy, Batch, Any], tuple["Tensor", Metrics]]


def plain(task: Task) -> str:
    """No hint."""
    return ""


@dataclass
class Run:
    """What an update works on; everything but the exam is in a checkpoint. `memory` is the page's own, and JSON."""

    args: Args
    exam: Exam
    policy: HFPolicy
    optimizer: Optimizer
    reference: HFPolicy | None  # None where there is no KL, or the adapter is switched off for it
    ranks: Ranks
    sampler: Checkpoint  # plays the episodes: the policy itself, or an engine that is sent its weights
    memory: dict[str, Any]
    update: int = 0
    cursor: int = 0  # training tasks drawn so far

    def whole(self, policy: HFPolicy | None = None) -> contextlib.AbstractContextManager[None]:
        """For forward passes whose number differs from process to process: weights that are cut up are put together."""
        return shard.whole((policy or self.policy).model) if self.ranks.shards else contextlib.nullcontext()


@dataclass
class Played:
    """A rank's episodes of one update, in order of group and trial."""

    trajectories: list[Trajectory]
    groups: list[int]
    replaced: list[Trajectory]  # of groups without spread, which others stand in for
    drawn_again: int = 0  # how many groups those were


class Told(NamedTuple):
    """What hindsight says of a batch: a hint a trajectory ("" for none), and figures for the log, over all ranks."""

    hints: Sequence[str]
    figures: Mapping[str, float] = MappingProxyType({})


Hindsight = Callable[[Run, Sequence[Trajectory]], Told]  # hints that only the re-scoring teacher sees (SEED, SSPO)


def train(
    args: Args,
    *,
    advantages: Advantages,
    objective: Objective,
    context: Context = plain,
    hindsight: Hindsight | None = None,
    memory: dict[str, Any] | None = None,
    resume: bool = False,
) -> Path:
    """Train and leave a model folder in args.out. Raises SeedbenchError; the last checkpoint then stands.

    `memory` is what context and hindsight keep between updates (JSON); a resumed run finds in it what it had.
    """
    loading.require_train()
    if not args.out:
        raise SeedbenchError("--out is missing: name the folder to train into.")
    out = Path(args.out)
    if (out / FILE).exists() and not resume:
        raise SeedbenchError(f"{out} holds a run already: go on with --resume {out}, or name another --out.")
    out.mkdir(parents=True, exist_ok=True)
    ranks = Ranks(args.shard)
    ranks.wait()  # all have looked whether a run is there before one begins it
    run = _open(args, out, resume, ranks, {} if memory is None else memory)
    if run.ranks.rank == 0:
        (out / "train.json").write_text(args.dumps(), encoding="utf-8")
    main = run.ranks.rank == 0
    tracker = open_tracker(args.track, out, run.update, dataclasses.asdict(args)) if main else None
    with Log(out, run.update, args.updates, quiet=not main, tracker=tracker) as log:
        while run.update < args.updates:
            started = time.perf_counter()
            with run.whole():
                sent = refresh(run.sampler, run.policy, args, run.exam.first_prompt)
                synced = time.perf_counter()
                batch = _rollout(run, context)
            if isinstance(run.sampler, Engine):
                run.sampler.rest()
            played = time.perf_counter()
            rows = rows_of(batch.trajectories, batch.groups, args.reward, args.reward_scale)
            for row, value in zip(rows, advantages(rows, args), strict=True):
                row.advantage = value
            apart = _score(run, rows)
            told: dict[str, float] = {}
            if hindsight is not None:
                with run.whole():
                    told = _teach(run, rows, hindsight(run, batch.trajectories))
            scored = time.perf_counter()
            figures = _update(run, rows, objective) | told
            run.update += 1
            figures |= {**sent, **apart,
                        "sync_seconds": synced - started,
                        "rollout_seconds": played - synced, "score_seconds": scored - played,
                        "update_seconds": time.perf_counter() - scored}  # fmt: skip
            log.write(
                {
                    "update": run.update,
                    "processes": run.ranks.world,
                    **_played(run, batch, rows),
                    **figures,
                }
            )
            if run.update % args.save_every == 0 and run.update < args.updates:
                state = {"update": run.update, "cursor": run.cursor, "base": _base(run), "memory": run.memory}
                checkpoint.save(out, run.policy, run.optimizer, state, main)
        checkpoint.finish(out, run.policy, main)
        if main:
            plot(out / FILE)
    if isinstance(run.sampler, Engine):
        run.sampler.close()
    run.ranks.wait()
    return out


def _open(args: Args, out: Path, resume: bool, ranks: Ranks, memory: dict[str, Any]) -> Run:
    config = Config("train", env=args.env, split="train", data=args.data, max_steps=args.max_steps,
                    history=args.history, batch=args.slots)  # fmt: skip
    exams = plan(config)
    if len(exams) != 1:
        raise SeedbenchError("--env names several environments: train on one.")
    last = checkpoint.latest(out) if resume else None
    policy = _load(args, args.model if last is None or args.lora_rank else str(last))
    if args.lora_rank:
        seed = stream("adapter", args.seed) % 2**63
        adapter.add_adapter(policy.model, args.lora_rank, args.lora_alpha or 2 * args.lora_rank, seed)
    if args.activation_checkpointing:
        shard.recompute(policy.model)
    reference = _load(args, args.model) if args.kl and not args.lora_rank else None
    if ranks.shards:
        for some in filter(None, (policy, reference)):
            shard.shard(some.model)
    optimizer = Optimizer(policy.model, args.lr, args.weight_decay)
    run = Run(args, exams[0], policy, optimizer, reference, ranks, open_sampler(args, policy, ranks), memory)
    if last is not None:
        state = checkpoint.restore(last, policy, run.optimizer)
        if state["base"] != _base(run):
            raise SeedbenchError(f"{args.model} is not the model that {last} is an adapter of: put that one back.")
        run.update, run.cursor = state["update"], state["cursor"]
        memory.update(state["memory"])
    return run


def _load(args: Args, source: str) -> HFPolicy:
    policy = load_policy(source, args.env, seed=args.seed, device=args.device, dtype=args.dtype, threads=args.threads)
    policy.token_budget = args.token_budget
    return policy


def _base(run: Run) -> str | None:
    """Digest of the weights beside an adapter, which its checkpoints do not hold."""
    return run.policy.describe()["revision"] if run.args.lora_rank else None


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


def _rollout(run: Run, context: Context) -> Played:
    """This rank's share of the update's groups. For `resample` rounds those without spread are drawn again; every rank
    knows of all of them, so that the next tasks are the same everywhere."""
    drawn: list[Task] = []  # of the update, over all ranks and rounds: a task that comes twice has trials of its own
    wanted = list(range(run.args.tasks))
    kept: dict[int, list[Trajectory]] = {}
    replaced: list[Trajectory] = []
    again = 0
    for extra in range(run.args.resample + 1):
        mine = wanted[run.ranks.rank :: run.ranks.world]
        new = _play_groups(run, context, wanted, mine, drawn)
        replaced += [t for g in new for t in kept.get(g, ())]
        kept |= new
        if extra == run.args.resample:
            break
        wanted = sorted(run.ranks.gather([g for g in mine if _flat(kept[g], run.args)]))
        if not wanted:
            break
        again += len(wanted)
    order = sorted(kept)
    return Played([t for g in order for t in kept[g]], [g for g in order for _ in kept[g]], replaced, again)


def _play_groups(
    run: Run, context: Context, wanted: Sequence[int], mine: Sequence[int], drawn: list[Task]
) -> dict[int, list[Trajectory]]:
    """A new task for each `wanted` group (added to `drawn`) and the episodes of those that are `mine`, by trial."""
    args = run.args
    agent = LocalAgent("policy", run.sampler, batch=args.slots, max_prompt_tokens=args.max_prompt_tokens)
    agent.sampling, agent.prompt = Sampling(args.temperature, 1.0, args.max_new_tokens), run.exam.prompt
    seed = stream("train", args.seed, run.update)
    place: dict[tuple[str, int], int] = {}
    episodes = []
    for g, task in zip(wanted, _tasks(run, len(wanted)), strict=True):
        first = args.group * sum(t.id == task.id for t in drawn)
        drawn.append(task)
        if g not in mine:
            continue
        hint = context(task)
        for trial in range(first, first + args.group):
            place[task.id, trial] = g
            episodes.append(Episode(task, seed, trial, hint))
    groups: dict[int, list[Trajectory]] = {g: [] for g in mine}
    for t in play(run.exam.make, episodes, agent, slots=args.slots, prompt=run.exam.prompt):
        groups[place[t.task.id, t.trial]].append(t)
    return {g: sorted(some, key=lambda t: t.trial) for g, some in groups.items()}


def _flat(group: Sequence[Trajectory], args: Args) -> bool:
    """Whether the rewards of a task's episodes are all alike (crashed ones, which teach nothing, left out)."""
    return len({earned(t, args.reward, args.reward_scale) for t in group if t.ended != "error"}) < 2


def _score(run: Run, rows: list[Row]) -> dict[str, float]:
    """The reference model's log-probabilities, where there is one; logp_old is what the policy itself recorded as it
    sampled, or where an engine did, what the policy makes of it: returned is how far those two are apart."""
    with run.whole():
        apart = rescore(rows, run.sampler, run.policy, run.args.temperature)
    if not run.args.kl:
        return apart
    reference = run.reference or run.policy
    with run.whole(reference), adapter.without_adapter(run.policy.model):
        scored = reference.logprobs(
            [r.prompt_ids for r in rows], [r.completion_ids for r in rows], temperature=run.args.temperature
        )
    for row, values in zip(rows, scored, strict=True):
        row.logp_ref = values
    return apart


def _teach(run: Run, rows: list[Row], told: Told) -> dict[str, float]:
    """Score the same sampled tokens after the prompt with the trajectory's hint in its slot, with the batch's frozen
    weights. A row that does not fit with its hint, even without past steps, is left untaught and counted."""
    started = time.perf_counter()
    prompts, taught, long = [], [], 0
    for row in rows:
        if hint := told.hints[row.trajectory]:
            try:
                prompts.append(_hinted(run, row, hint))
                taught.append(row)
            except SeedbenchError:
                long += 1
    scored = run.policy.logprobs(prompts, [r.completion_ids for r in taught], temperature=run.args.temperature)
    for row, values in zip(taught, scored, strict=True):
        row.logp_teacher = values
    tokens = run.ranks.sum([sum(len(r.completion_ids) for r in some) for some in (taught, rows)] + [long])
    return dict(told.figures) | {
        "coverage": tokens[0] / max(tokens[1], 1.0), "rescore_too_long": tokens[2],
        "rescore_seconds": time.perf_counter() - started,
    }  # fmt: skip


def _hinted(run: Run, row: Row, hint: str) -> tuple[int, ...]:
    """The row's prompt with `hint` in its slot, where the actor may have seen another or none; cut as the actor's is,
    but beside the tokens that are to be scored."""
    view = dataclasses.replace(row.view, hint=hint, messages=())
    return fit(run.policy, run.exam.prompt, view, run.args.max_prompt_tokens, len(row.completion_ids))[0]


def _update(run: Run, rows: list[Row], objective: Objective) -> dict[str, float]:
    """One or more optimizer steps over the rows. Rows without a gradient count in the loss's mean but are not computed;
    what is measured on the way (entropy, say) is a mean over the tokens that were."""
    args, model = run.args, run.policy.model
    sums: dict[str, float] = {}
    norms: list[float] = []
    shares: list[float] = []
    counts = run.ranks.gather([len(rows)])
    first, everyone = sum(counts[: run.ranks.rank]), sum(counts)
    places = run.ranks.gather([(row.group, row.trajectory, row.step) for row in rows])
    order = np.empty(everyone, np.int64)  # of each row among all ranks', the same however groups are shared out
    order[sorted(range(everyone), key=places.__getitem__)] = np.arange(everyone)
    parts = max(1, round(everyone / args.mini_batch_rows)) if args.mini_batch_rows else args.mini_batches
    for epoch in range(args.epochs):
        rng = np.random.default_rng(stream("deal", args.seed, args.deal_seed, run.update, epoch))
        part = deal(everyone, parts, rng)[order[first : first + len(rows)]]
        for k in range(parts):
            mine = [row for row, p in zip(rows, part, strict=True) if p == k]
            tokens = run.ranks.sum([sum(len(r.completion_ids) for r in mine),
                                    sum(len(r.completion_ids) for r in mine if r.logp_teacher)])  # fmt: skip
            if not tokens[0]:
                continue
            busy = [r for r in mine if r.advantage or args.kl or args.entropy or (r.logp_teacher and args.teaches)]
            work = list(passes(busy, args.token_budget))
            most = max(run.ranks.gather([len(work)])) if run.ranks.shards else len(work)
            share = Share(run.optimizer, run.ranks) if args.shares(run.update) else None
            for some in work:
                batch = batch_of(some, int(tokens[0]), int(tokens[1]), model.device, run.update)
                loss, metrics = objective(run.policy, batch, args)
                own_part = metrics.pop("part", None)
                if share is not None and own_part is not None:
                    share.add(own_part)
                loss.backward()
                run.optimizer.absorb()
                if not math.isfinite(value := float(loss.detach())):
                    raise _broken(run, some, "the loss is not finite")
                _add(sums, {"loss": value * batch.total, "computed": len(batch.row), **metrics})
            _keep_step(run, most - len(work))
            if share is not None:
                shares += share.of_the_rest()
            norms.append(_step(run))
            sums["tokens"] = sums.get("tokens", 0.0) + float(tokens[0])
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


def _played(run: Run, batch: Played, rows: list[Row]) -> dict[str, Any]:
    """What the update's episodes were like, over all ranks. Success, score, reward and steps are those of every
    episode that was played, replaced ones too: groups that are chosen for their spread would flatter or slander."""
    args, trajectories = run.args, batch.trajectories + batch.replaced
    rewards = [earned(t, args.reward, args.reward_scale) for t in trajectories if t.ended != "error"]
    steps_taken = [step for t in trajectories for step in t.steps]
    spread: dict[int, set[float]] = {}
    for row in rows:
        spread.setdefault(row.group, set()).add(row.reward)
    mine = [
        len(trajectories), sum(t.success for t in trajectories), math.fsum(t.score for t in trajectories),
        len(steps_taken), len(rows), sum(not s.format_valid for s in steps_taken),
        math.fsum(rewards), len(set(batch.groups)),
        sum(len(s) == 1 for s in spread.values()), sum(t.ended == "error" for t in trajectories),
        sum(s.reply.usage.get("cut_prompts", 0) for s in steps_taken),
    ]  # fmt: skip
    n, won, score, steps, trained, invalid, reward, of, flat, errors, cut = run.ranks.sum(mine)
    prompts = run.ranks.gather([(r.group, r.trajectory, r.step, prompt_sha(r.view.messages)) for r in rows])
    return {
        "success": won / n, "score": score / n, "reward": reward / n, "episode_steps": steps / n,
        "invalid_rate": invalid / max(steps, 1), "flat_groups": flat / of, "errors": errors, "rows": trained,
        "resampled": batch.drawn_again, "cut_prompts": cut,
        "prompt_digest": sha256_json([sha for _, _, _, sha in sorted(prompts)]),
    }  # fmt: skip
