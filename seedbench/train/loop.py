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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from seedbench import record
from seedbench.core import SeedbenchError, Task, Trajectory, stream
from seedbench.exam import Config, Exam, plan_one
from seedbench.policy import adapter, chat, loading, weights
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.policy.vllm import Engine
from seedbench.train import checkpoint, folder, rollouts, scoring, shard
from seedbench.train.args import Args
from seedbench.train.log import FILE, Log, plot
from seedbench.train.optimizer import Optimizer
from seedbench.train.ranks import Ranks
from seedbench.train.rows import Batch, Row, rows_of
from seedbench.train.sampler import open_sampler, refresh
from seedbench.train.teacher import Teacher
from seedbench.train.track import open_tracker
from seedbench.train.update import update

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
    """What an update works on; everything but the exam is in a checkpoint. `memory` is the page's own."""

    args: Args
    exam: Exam
    policy: HFPolicy
    optimizer: Optimizer
    reference: HFPolicy | None  # None where there is no KL, or the adapter is switched off for it
    ranks: Ranks
    teacher: Teacher  # the weights that score what hindsight tells: the batch's own, or a copy
    sampler: Checkpoint  # plays the episodes: the policy itself, or an engine that is sent its weights
    memory: checkpoint.Memory
    update: int = 0
    cursor: int = 0  # training tasks drawn so far
    budget: int = 0  # tokens of a pass of the update: args.token_budget, or less after running out of memory

    def whole(self, policy: HFPolicy | None = None) -> contextlib.AbstractContextManager[None]:
        """For forward passes whose number differs from process to process: weights that are cut up are put together."""
        return shard.whole((policy or self.policy).model) if self.ranks.shards else contextlib.nullcontext()


class Told(NamedTuple):
    """What hindsight says of a batch: a hint a trajectory (None, or "" unless `empty`, for one that is not scored
    again), and figures for the log, over all ranks."""

    hints: Sequence[str | None]
    figures: Mapping[str, float] = MappingProxyType({})
    empty: bool = False  # "" is scored as well: by a teacher that is told nothing


Hindsight = Callable[[Run, Sequence[Trajectory]], Told]  # hints that only the re-scoring teacher sees (SEED, SSPO)


def train(
    args: Args,
    *,
    advantages: Advantages,
    objective: Objective,
    context: Context = plain,
    hindsight: Hindsight | None = None,
    memory: checkpoint.Memory | None = None,
    resume: bool = False,
) -> Path:
    """Train and leave a model folder in args.out. Raises SeedbenchError; the last checkpoint then stands.

    `memory` is what context and hindsight keep between updates; a resumed run finds in it what it had.
    """
    loading.require_train()
    if not args.out:
        raise SeedbenchError("--out is missing: name the folder to train into.")
    out = Path(args.out)
    if resume and folder.finished(out):
        return out
    if (out / FILE).exists() and not resume:
        raise SeedbenchError(f"{out} holds a run already: go on with --resume {out}, or name another --out.")
    ranks = Ranks(args.shard)
    ranks.wait()  # all have looked whether a run is there before one begins it
    folder.make(out)
    with record.locked(out) if ranks.rank == 0 else contextlib.nullcontext():
        _train(args, out, ranks, advantages, objective, context, hindsight, memory, resume)
    return out


def _train(
    args: Args, out: Path, ranks: Ranks, advantages: Advantages, objective: Objective, context: Context,
    hindsight: Hindsight | None, memory: checkpoint.Memory | None, resume: bool,
) -> None:  # fmt: skip
    files = _files(args)
    run = _open(args, out, resume, ranks, {} if memory is None else memory, files)
    main = ranks.rank == 0
    if main:
        record.write_text(out / "train.json", args.dumps())
    tracker = open_tracker(args.track, out, run.update, dataclasses.asdict(args)) if main else None
    with Log(out, run.update, args.updates, quiet=not main, tracker=tracker) as log:
        while run.update < args.updates:
            log.write(_one_update(run, advantages, objective, context, hindsight))
            if run.update % args.save_every == 0 and run.update < args.updates:
                state = {"update": run.update, "cursor": run.cursor, "base": _base(run), "memory": run.memory,
                         "files": files}  # fmt: skip
                checkpoint.save(out, run.policy, run.optimizer, state, main, run.teacher)
        if main:
            plot(out / FILE)
        folder.finish(out, run.policy, main)
    if isinstance(run.sampler, Engine):
        run.sampler.close()
    ranks.wait()


def _one_update(
    run: Run, advantages: Advantages, objective: Objective, context: Context, hindsight: Hindsight | None
) -> dict[str, Any]:
    """Play, score, learn; returns the line for the log."""
    args = run.args
    started = time.perf_counter()
    run.teacher.refresh(run.update)
    with run.whole():
        sent = refresh(run.sampler, run.policy, args, run.exam.first_prompt)
        synced = time.perf_counter()
        batch = rollouts.rollout(run, context)
    if isinstance(run.sampler, Engine):
        run.sampler.rest()
    played = time.perf_counter()
    rows = rows_of(batch.trajectories, batch.groups, args.reward, args.reward_scale)
    for row, value in zip(rows, advantages(rows, args), strict=True):
        row.advantage = value
    apart = scoring.score(run, rows)
    told: dict[str, float] = {}
    if hindsight is not None:
        with run.whole():
            hints = hindsight(run, batch.trajectories)
        before = time.perf_counter()
        with run.teacher.speaks(), run.whole():
            told = scoring.teach(run, rows, hints)
        told["rescore_seconds"] = time.perf_counter() - before  # with the time in which weights change places
    scored = time.perf_counter()
    learned = {**args.unmeasured, **update(run, rows, objective), **told}
    run.update += 1
    return {
        "update": run.update, "processes": run.ranks.world, **rollouts.figures(run, batch, rows), **learned, **sent,
        **apart, "sync_seconds": synced - started, "rollout_seconds": played - synced,
        "score_seconds": scored - played, "update_seconds": time.perf_counter() - scored,
    }  # fmt: skip


def _open(
    args: Args, out: Path, resume: bool, ranks: Ranks, memory: checkpoint.Memory, files: Mapping[str, str]
) -> Run:
    config = Config("train", env=args.env, split="train", data=args.data, preset=args.preset,
                    max_steps=args.max_steps, history=args.history, batch=args.slots)  # fmt: skip
    exam = plan_one(config)
    last = checkpoint.latest(out) if resume else None
    if last is not None and not args.lora_rank:
        with checkpoint.readable(last):
            loading.check_folder(last)
            chat.merges_system(chat.load_tokenizer(last, None))
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
    teacher = Teacher(optimizer.named, args.teacher_sync)
    run = Run(args, exam, policy, optimizer, reference, ranks, teacher, open_sampler(args, policy, ranks), memory,
              budget=args.token_budget)  # fmt: skip
    if last is not None:
        state = checkpoint.restore(last, policy, run.optimizer, teacher)
        if state["base"] != _base(run):
            raise SeedbenchError(f"{args.model} is not the model that {last} is an adapter of: put that one back.")
        for flag, digest in files.items():
            if state["files"].get(flag, digest) != digest:
                raise SeedbenchError(
                    f"--{flag} {args.reads[flag]} has changed since the run began: put that file back."
                )
        run.update, run.cursor = state["update"], state["cursor"]
        memory.update(state["memory"])
    return run


def _load(args: Args, source: str) -> HFPolicy:
    policy = load_policy(source, args.env, seed=args.seed, device=args.device, dtype=args.dtype, threads=args.threads,
                         thinking=args.thinking)  # fmt: skip
    policy.token_budget, policy.packed = args.token_budget, args.layout == "packed"
    return policy


def _files(args: Args) -> dict[str, str]:
    """Digests of what `args.reads` names, which checkpoints do not hold."""
    try:
        return {flag: weights.sha256_files([Path(path)]) for flag, path in args.reads.items()}
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise SeedbenchError(f"A file that the settings name cannot be read: {error}.") from error


def _base(run: Run) -> str | None:
    """Digest of the weights beside an adapter, which its checkpoints do not hold."""
    return run.policy.describe()["revision"] if run.args.lora_rank else None
