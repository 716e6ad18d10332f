"""Speed of a training update, ours beside its peers, in one run and one process.

    python benchmarks/train.py                                    # a few minutes of one core
    python benchmarks/train.py --env webshop --model runs/sft --new 32 --trl-steps 0

All figures are CPU seconds (time.process_time) of one torch thread. The same policy samples the same tasks:

rollout   play() with 64 episodes at a time; peers: transformers.generate on one prompt at a time (a few episodes),
          and batched transformers.generate on the very prompts of our rollout. Peers are not asked for
          log-probabilities, which training needs: that favours them.
update    rows of that rollout through our objective and backward pass; peers: logits of the whole vocabulary at all
          positions, in fixed batches padded to their longest row, and one row at a time. The first must give our loss.
train     one update of `seedbench train grpo`, and which part of it is spent where.
TRL       GRPOTrainer with a rollout_func over the same tasks, both sides cut at --trl-steps turns (train_trl.py).

Tried on a 0.5 M-parameter policy on ALFWorld, 64 episodes, 896 prompts of 260 tokens, on a machine shared with others
(figures are pairs of runs, and differ between pairs):
kept      reading at most 4,096 prompt tokens in one pass on a CPU (from 16,384: 6 and 19 % less time); equal prompts
          read once (8 % of the rows; 2 and 11 % less); the common beginning of all prompts read once (3 and 25 % less);
          ids of prompts kept by line (whole prompts took 0.50 ms each); a check of token ids without a Python loop
          (1 % of a rollout).
dropped   2,048 or 8,192 tokens a pass (no difference that could be told from noise); 4,096 tokens a pass in the update
          (none either); all prompts of a turn tokenised in one call (0.30 against 0.35 ms a prompt). Looked at in a
          micro-benchmark only: eager attention (2 to 4 times slower at 250 tokens, no gain for one), and attention
          without a mask, for prompts padded on the right (as fast as behind a shared beginning; they cannot be joined).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder, whose alfworld.py hides the package

import numpy as np  # noqa: E402
import torch  # noqa: E402

from seedbench.agents.local import LocalAgent  # noqa: E402
from seedbench.baselines import grpo  # noqa: E402
from seedbench.core import Reply, Sampling, Trajectory, View  # noqa: E402
from seedbench.exam import Config, Exam, plan  # noqa: E402
from seedbench.policy.fresh import load_policy  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from seedbench.rollout import Episode, play  # noqa: E402
from seedbench.train.args import Args  # noqa: E402
from seedbench.train.rows import Row, batch_of, passes, rows_of  # noqa: E402

Ids = Sequence[Sequence[int]]


class Recorder(LocalAgent):
    """The local agent; keeps the prompts of each call."""

    calls: list[list[tuple[int, ...]]]

    def act(self, views: Sequence[View], envs: Any = None) -> Sequence[Reply | Exception]:
        replies = super().act(views, envs)
        self.calls.append([r.tokens.prompt_ids for r in replies if isinstance(r, Reply) and r.tokens])
        return replies


class OneByOne(LocalAgent):
    """What a plain script does: render and encode the prompt, transformers.generate, decode; one after another."""

    def act(self, views: Sequence[View], envs: Any = None) -> Sequence[Reply | Exception]:
        replies: list[Reply | Exception] = []
        for view in views:
            tokenizer = self.policy.tokenizer
            ids = tokenizer.apply_chat_template(list(view.messages), add_generation_prompt=True, return_dict=False)
            (said,) = transformers_generate(self.policy, [ids], self.sampling.max_new_tokens)
            replies.append(
                Reply(tokenizer.decode(said, skip_special_tokens=True), usage={"completion_tokens": len(said)})
            )
        return replies


def transformers_generate(policy: HFPolicy, prompts: Ids, new: int) -> list[list[int]]:
    """Sampled completions by model.generate, padded on the left; the end-of-turn token included."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    stops = sorted(policy.stop_ids)
    with torch.inference_mode():
        out = policy.model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new,
            eos_token_id=stops, pad_token_id=0,
        )[:, width:].tolist()  # fmt: skip
    ends = [next((k + 1 for k, t in enumerate(row) if t in policy.stop_ids), len(row)) for row in out]
    return [row[:end] for row, end in zip(out, ends, strict=True)]


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def line(name: str, seconds: float, generated: int, processed: int, turns: int = 0, ours: float = 0) -> None:
    """One row of a table; `ours` is our rate of what the last column compares."""
    rate = generated / seconds if generated else processed / seconds
    ratio = f"{ours / rate:9.2f}x" if ours else f"{'':>10}"
    of = f"{generated / seconds:10,.0f}" if generated else f"{'':>10}"
    each = f"{turns / seconds:9.0f}" if turns else f"{'':>9}"
    print(f"  {name:52} {seconds:8.2f} {of} {processed / seconds:11,.0f} {each} {ratio}", flush=True)


def rollout(exam: Exam, policy: HFPolicy, options: argparse.Namespace) -> list[Trajectory]:
    """Part (a). Returns our trajectories."""
    tasks = exam.tasks["train"][: options.tasks]
    episodes = [Episode(task, 0, trial) for task in tasks for trial in range(options.group)]
    sampling = Sampling(1.0, 1.0, options.new)
    agent, naive = Recorder("policy", policy, batch=64), OneByOne("policy", policy)
    agent.sampling = naive.sampling = sampling
    agent.calls = []
    list(play(exam.make, episodes[:2], agent, slots=64, prompt=exam.prompt))  # what runs once runs here
    agent.calls = []
    seconds, played = cpu(lambda: list(play(exam.make, episodes, agent, slots=64, prompt=exam.prompt)))
    steps = [s for t in played for s in t.steps]
    tokens = [s.reply.tokens for s in steps if s.reply.tokens]
    generated, read = sum(len(t.completion_ids) for t in tokens), sum(len(t.prompt_ids) for t in tokens)
    print(f"\nrollout: {len(played)} episodes, {len(steps)} replies, {read / len(steps):.0f} tokens a prompt, "
          f"{generated / len(steps):.1f} a reply, {len({t.prompt_ids for t in tokens})} distinct prompts, "
          f"{np.mean([t.success for t in played]):.0%} won")  # fmt: skip
    print(f"  {'':52} {'CPU-s':>8} {'new tok/s':>10} {'all tok/s':>11} {'replies/s':>9} {'ours':>10}")
    line("ours: play(), 64 episodes at a time", seconds, generated, generated + read, len(steps))
    single = episodes[:: max(1, len(episodes) // options.single)][: options.single]
    slow, alone = cpu(lambda: list(play(exam.make, single, naive, slots=1, prompt=exam.prompt)))
    turns = sum(len(t.steps) for t in alone)
    new = sum(s.reply.usage["completion_tokens"] for t in alone for s in t.steps)
    line(f"transformers.generate, one episode at a time ({len(alone)})", slow, new, new + read * turns // len(steps),
         turns, generated / seconds)  # fmt: skip
    streams = [list(range(len(call))) for call in agent.calls]
    how = {"temperature": 1.0, "max_new_tokens": options.new}
    mine, said = cpu(lambda: [policy.generate(c, streams=s, **how) for c, s in zip(agent.calls, streams, strict=True)])
    made = sum(len(g.completion_ids) for some in said for g in some)
    line("ours: generation alone, on the same prompts", mine, made, made + read, len(steps))
    theirs, said = cpu(lambda: [transformers_generate(policy, call, options.new) for call in agent.calls])
    other = sum(len(g) for some in said for g in some)
    line("transformers.generate, batches of 64, same prompts", theirs, other, other + read, len(steps), made / mine)
    return played


def update(policy: HFPolicy, rows: list[Row], options: argparse.Namespace) -> None:
    """Part (b): forward and backward over the same rows; the loss must be the same."""
    rows = rows[: options.rows]
    args, total = Args(dual_clip=3.0), sum(len(r.completion_ids) for r in rows)

    def ours(budget: int) -> float:
        loss = 0.0
        for some in passes(rows, budget):
            value, _ = grpo.objective(policy, batch_of(some, total, 0, "cpu"), args)
            value.backward()
            loss += float(value.detach())
        return loss

    def naive(size: int, some: list[Row]) -> float:
        loss = 0.0
        for at in range(0, len(some), size):
            part = some[at : at + size]
            value = full_logits_loss(policy, part, total, args)
            value.backward()
            loss += float(value.detach())
        return loss

    processed = sum(len(r.prompt_ids) + len(r.completion_ids) for r in rows)
    print(f"\nupdate: forward and backward over {len(rows)} rows, {processed:,} tokens, {total:,} of them sampled")
    print(f"  {'':52} {'CPU-s':>8} {'':>10} {'tokens/s':>11} {'rows/s':>9} {'ours':>10}")
    ours(Args().token_budget)  # warm
    policy.model.zero_grad()
    seconds, loss = cpu(lambda: ours(Args().token_budget))
    gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    line(f"ours: logits at sampled tokens, {Args().token_budget:,} tokens a pass", seconds, 0, processed, len(rows))
    for budget in (16384, 4096):
        if budget != Args().token_budget:
            line(f"ours: {budget:,} tokens a pass", cpu(lambda b=budget: ours(b))[0], 0, processed, len(rows),
                 processed / seconds)  # fmt: skip
    policy.model.zero_grad()
    slow, other = cpu(lambda: naive(8, rows))
    line("logits at all positions, 8 rows at a time", slow, 0, processed, len(rows), processed / seconds)
    off = torch.cat([p.grad.flatten() for p in policy.model.parameters()]) - gradient
    assert abs(other - loss) < 1e-5 and off.norm() < 1e-3 * gradient.norm(), (other, loss, off.norm(), gradient.norm())
    few = rows[:: max(1, len(rows) // 64)]
    read = sum(len(r.prompt_ids) + len(r.completion_ids) for r in few)
    slow, _ = cpu(lambda: naive(1, few))
    line(f"logits at all positions, one row at a time ({len(few)} rows)", slow, 0, read, len(few), processed / seconds)
    policy.model.zero_grad()


def full_logits_loss(policy: HFPolicy, rows: list[Row], total: int, args: Args) -> torch.Tensor:
    """The same loss as most scripts compute it: (n, t, V) log-softmax of everything, padded, then a mask."""
    width = max(len(r.prompt_ids) + len(r.completion_ids) for r in rows)
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    wanted, old, gain = (torch.zeros(len(rows), width) for _ in range(3))
    for i, row in enumerate(rows):
        n, m = len(row.prompt_ids), len(row.completion_ids)
        ids[i, : n + m], mask[i, : n + m] = torch.tensor([*row.prompt_ids, *row.completion_ids]), 1
        wanted[i, n : n + m], gain[i, n : n + m] = 1, row.advantage
        old[i, n : n + m] = torch.tensor(row.logp_old)
    logits = policy.model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    logp = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    A, ratio = gain[:, 1:], torch.exp(logp - old[:, 1:])
    loss = torch.max(-A * ratio, -A * ratio.clamp(1 - args.clip, 1 + args.clip))
    loss = torch.where(A < 0, torch.min(loss, -A * args.dual_clip), loss)
    return (loss * wanted[:, 1:]).sum() / total


class Clock:
    """CPU seconds by label, each call's own: what it calls under another label counts there."""

    def __init__(self) -> None:
        self.own: dict[str, float] = defaultdict(float)
        self._stack: list[list[float]] = []
        self._undo: list[Callable[[], None]] = []

    def watch(self, owner: Any, name: str, label: str) -> None:
        """Replace owner.name by itself with a watch around it, until `stop`."""
        kept = owner.__dict__[name]

        def timed(*given: Any, **more: Any) -> Any:
            self._stack.append([0.0])
            began = time.process_time()
            try:
                return kept(*given, **more)
            finally:
                spent = time.process_time() - began
                self.own[label] += spent - self._stack.pop()[0]
                if self._stack:
                    self._stack[-1][0] += spent

        setattr(owner, name, timed)
        self._undo.append(lambda: setattr(owner, name, kept))

    def stop(self) -> None:
        for undo in reversed(self._undo):
            undo()


def share(exam: Exam, options: argparse.Namespace) -> None:
    """Part (d): where two updates of `seedbench train grpo` spend their time, loading and saving left out."""
    from seedbench import rollout as rolling
    from seedbench.policy import decoding, hf
    from seedbench.policy.checkpoint import Checkpoint
    from seedbench.train import loop
    from seedbench.train import update as updating

    clock, env = Clock(), type(exam.make())
    left_out, inner = "(left out)", "sampling, cache"
    outside = ["environment", "rendering, hashing", "tokenising", "the rest"]
    for owner, name, label in [
        (loop, "train", "the rest"), (loop, "_open", left_out), (loop, "plot", left_out),
        (hf.HFPolicy, "save", left_out), (decoding.Net, "logits", "forward"), (hf, "decode", inner),
        (hf.HFPolicy, "score", "loss"),
        (grpo, "policy_loss", "loss"), (torch.Tensor, "backward", "backward"), (updating, "_step", "optimizer"),
        (env, "reset", "environment"), (env, "step", "environment"), (env, "parse", "environment"),
        (rolling._Running, "_see", "rendering, hashing"), (Checkpoint, "encode", "tokenising"),
        (Checkpoint, "decode", "tokenising"),
    ]:  # fmt: skip
        clock.watch(owner, name, label)
    try:
        with tempfile.TemporaryDirectory() as out:
            args = Args(env=options.env, model=options.model, out=out, updates=2, tasks=options.tasks,
                        group=options.group, max_new_tokens=options.new, lr=1e-4, threads=1)  # fmt: skip
            loop.train(args, advantages=spread, objective=grpo.objective)
    finally:
        clock.stop()
    clock.own.pop(left_out)
    total = sum(clock.own.values())
    print(f"\ntrain: two updates of {options.tasks} x {options.group} episodes, {total:.1f} CPU-s in all")
    for label, seconds in sorted(clock.own.items(), key=lambda x: -x[1]):
        print(
            f"  {label:30} {seconds:8.2f} s {seconds / total:7.1%}{'   outside the model' if label in outside else ''}"
        )
    away = sum(clock.own[label] for label in outside)
    print(f"  outside the model: {away / total:.1%}; with sampling and the cache's upkeep "
          f"{(away + clock.own[inner]) / total:.1%}")  # fmt: skip


def spread(rows: Sequence[Row], args: Args) -> list[float]:
    """An advantage for every row but those of the flat groups, as many as GRPO would keep in a mixed batch: half."""
    return [0.0 if row.group % 2 else 1.0 if row.trajectory % 2 else -1.0 for row in rows]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="alfworld")
    p.add_argument("--model", default="tiny", help="tiny, fresh or a folder")
    p.add_argument("--tasks", type=int, default=8)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--new", type=int, default=24, help="most tokens of a reply")
    p.add_argument("--single", type=int, default=6, help="episodes that are played one at a time")
    p.add_argument("--rows", type=int, default=384, help="rows of the update")
    p.add_argument("--trl-steps", type=int, default=5, help="turns of an episode beside TRL; 0 leaves TRL out")
    options = p.parse_args()
    torch.set_num_threads(1)
    (exam,) = plan(Config("train", env=options.env, split="train"))
    policy = load_policy(options.model, options.env, threads=1)
    print(f"{options.env}, model {Path(options.model).name}: {policy.model.num_parameters():,} parameters, "
          f"torch {torch.__version__}, one thread, CPU seconds")  # fmt: skip
    played = rollout(exam, policy, options)
    rows = rows_of(played, [0] * len(played), "success", 1.0)
    for row in rows:
        row.advantage = 1.0 if row.trajectory % 2 else -1.0
    update(policy, rows, options)
    share(exam, options)
    if options.trl_steps:
        from benchmarks.train_trl import compare

        compare(exam, options)


if __name__ == "__main__":
    main()
