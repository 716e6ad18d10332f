"""Level 4, audit: did the declared checkpoint say the recorded tokens, sampled as declared?

Replay proves that the actions earn the score, not that the model chose them: an expert's actions replay perfectly. For
an open checkpoint one teacher-forced forward pass over the stored tokens tells. Nothing is sampled. Of every reply:

prompt    the ids are the replayed prompt through the model's own chat template, less the oldest past steps where the
          stated longest prompt (or the model's context) leaves no room for them
text      the ids decode to the recorded text, end where the model says stop or at the token limit, and nowhere else
argmax    (greedy) each token is the most likely one
support   (sampled) each token is one that this model may draw: inside top-p, and not absurdly unlikely
stream    (sampled by our own engine) each token is the one that the declared random stream draws. The stream is a
          hash of run seed, task, trial and turn, so neither an expert's words nor the best of several samples fit it
logprob   the recorded log-probabilities are those of the declared distribution
typical   summed over an episode and over the run, the tokens are as likely as samples are (evidence.Surprise)

Of our own scripted agents, which have no tokens, every reply is asked for again (leaderboard.scripted).

What stays invisible: the choice of the best of several run seeds; an edit of tokens of which the model was certain
anyway, or within rounding (wide for half precision); weights that have learnt the exam's answers. For an engine whose
random stream is not known, also the best of several samples, and an expert's words where they are typical of the model.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seedbench.core import Sampling, SeedbenchError, short_name
from seedbench.leaderboard.evidence import NOISE, Evidence, Surprise, split, tolerance, weigh
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.recorded import Row, chunks, rows
from seedbench.leaderboard.run import TOKENS, Run, place
from seedbench.leaderboard.scripted import check_scripted, is_scripted

if TYPE_CHECKING:
    from seedbench.policy.hf import HFPolicy

OPEN = ("local", "vllm")  # kinds of agents that play a checkpoint which anyone can load
STREAMED = ("local",)  # those of them that draw every token from the View's own stream
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SAME = ("revision", "chat_template_sha256", "model", "parameters", "system_role")  # of what a policy says of itself
Z = 4.0  # |z| of the sum of log p + H beyond which tokens are not typical, if the evidence agrees
RARE = math.log(1e4)  # ... which an honest run's does once in ten thousand runs at most
_SHOWN = 5  # findings of one kind; the rest are counted


def check_audit(run: Run, options: Options) -> list[Finding]:
    """What a forward pass finds wrong. Raises SeedbenchError where the verifier has to name the model."""
    try:
        if is_scripted(run):
            return check_scripted(run)
        if reason := impossible(run):
            if run.results.agent.get("kind") == "api" and options.beacon and options.model:
                return []  # on the way to the level reproduced, which an endpoint that the verifier names can take
            return [Finding("audit", run.stated, f"an audit is not possible: {reason}")]
        policies = load(run, options)
        if found := wrong_model(run, policies):
            return found
        report = audit(run, policies, progress=not options.quiet)
    except Unreadable as error:
        return [Finding("audit", TOKENS, str(error))]
    if not options.quiet:
        print(report)
    return report.findings


def impossible(run: Run) -> str:
    """Why no forward pass can be made over this run; "" if one can. Raises Unreadable."""
    kind = run.results.agent.get("kind")
    if kind not in OPEN:
        return f"an agent of kind {str(kind)[:40]!r} has no open checkpoint, so replay is the last level for it."
    if not run.has_tokens:
        return f"{TOKENS} is missing, which holds the token ids and log-probabilities."
    return ""


def load(run: Run, options: Options) -> dict[str, HFPolicy]:
    """For every environment of the run the model that the verifier names, or the hub id or `tiny` that the run names:
    never a path out of somebody's files."""
    from seedbench.policy.hf import HFPolicy

    agent = run.results.agent
    spec = options.model or str(agent.get("spec"))
    if options.model is None and spec != "tiny" and not HUB_ID.fullmatch(spec):
        raise SeedbenchError(
            f"the run names its model {spec[:100]!r}, which is no hub id: give the model's folder with --model."
        )
    dtype = agent.get("dtype")
    if dtype not in NOISE:
        raise Unreadable(f"the agent's dtype is {str(dtype)[:40]!r}, not one of {', '.join(NOISE)}.")
    envs = [r.env for r in run.results.results]
    if spec == "tiny":
        from seedbench.agents.tiny import Tiny

        tiny = Tiny(device=options.device, dtype=str(dtype), chat_template=options.chat_template)
        return {env: cast(HFPolicy, tiny.of(env).policy) for env in envs}  # what a folder's agent always plays with
    policy = HFPolicy.load(spec, device=options.device, dtype=str(dtype), chat_template=options.chat_template)
    return dict.fromkeys(envs, policy)


def wrong_model(run: Run, policies: Mapping[str, HFPolicy], level: str = "audit") -> list[Finding]:
    """Where a loaded model is not the recorded one, by the digest of its weights and chat template above all."""
    told = run.results.agent
    each = told.get("policies")
    found = []
    for env, policy in policies.items():
        own = each.get(short_name(env)) if isinstance(each, dict) else None
        was, now = {**told, **(own if isinstance(own, dict) else {})}, policy.describe()
        for name in SAME:
            if was.get(name) != now[name]:
                said = f"the run says {was.get(name)!r:.80}, the model loaded for {env} is {now[name]!r:.80}."
                found.append(Finding(level, f"agent.{name}", said))
    return list(dict.fromkeys(found))


@dataclass
class Report:
    """What was looked at, what was measured, and what is wrong."""

    slack: float = 0.0  # the largest tolerance in log-odds
    streamed: bool = False
    episodes: int = 1
    replies: int = 0
    tokens: int = 0
    worst: dict[str, float] = field(default_factory=dict)  # per test, the largest value seen, of any token
    counts: Counter[str] = field(default_factory=Counter)  # per test, how many tokens or replies failed it
    surprise: Surprise = field(default_factory=Surprise)
    findings: list[Finding] = field(default_factory=list)

    def wrong(self, test: str, where: str, message: str, count: int = 1) -> None:
        """Record a failure; only the first few of each kind become findings of their own."""
        self.counts[test] += count
        if sum(f.where.startswith(test) for f in self.findings) < _SHOWN:
            self.findings.append(Finding("audit", f"{test}: {where}", message))

    def measured(self, test: str, values: np.ndarray) -> None:
        self.worst[test] = max(self.worst.get(test, -math.inf), float(values.max()))

    def __str__(self) -> str:
        largest = ", ".join(f"{name} {value:.2g}" for name, value in self.worst.items())
        drawn = "" if self.streamed else " (engine's random stream not known: tokens were not drawn again)"
        return (
            f"audit: {self.tokens} tokens in {self.replies} replies, tolerance {self.slack:.2g} in log-odds; largest "
            f"{largest or 'none'}; z {self.surprise.z:+.2f}{drawn}"
        )


def audit(run: Run, policies: Mapping[str, HFPolicy], progress: bool = False) -> Report:
    """Look at every token of a run. Raises Unreadable for files that are not as eval writes them."""
    streamed = run.results.agent.get("kind") in STREAMED
    episodes = sum(r.attempted for r in run.results.results)
    report = Report(streamed=streamed, episodes=max(1, episodes))
    exams = {exam.env_id: exam for exam in run.exams}
    with _progress(episodes, progress) as bar:
        for env_id, chunk in chunks(run):
            if env_id not in exams:
                report.wrong("prompt", place(chunk[0].number, chunk[0].name), "no result is of this environment.")
                continue
            policy = policies[env_id]
            noise = NOISE[str(policy.model.dtype).removeprefix("torch.")]
            said = list(rows(run, exams[env_id], chunk, policy, report.wrong))
            _judge(said, policy, exams[env_id].sampling, noise, report)
            bar.advance(bar.task_ids[0], len(chunk))
    _typical(report.surprise, "the run", RARE, report)
    for test, count in report.counts.items():
        if count > _SHOWN:
            report.findings.append(Finding("audit", f"{test}: in total", f"{count} failures."))
    return report


def _progress(total: int, shown: bool) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), disable=not shown)
    bar.add_task("audit", total=total)
    return bar


def _judge(said: list[Row], policy: HFPolicy, sampling: Sampling, noise: float, report: Report) -> None:
    """One forward pass over the rows, and what it says of each."""
    from seedbench.policy.sampling import uniforms

    drawn = report.streamed and sampling.temperature > 0

    def look(logits: Any, ids: Any, which: list[int]) -> list[Evidence]:
        some = [said[i] for i in which]
        recorded = np.concatenate([np.asarray(row.logprobs, dtype=np.float64) for row in some])
        u = np.concatenate([uniforms([r.stream], len(r.completion))[0] for r in some]) if drawn else None
        return split(weigh(logits, ids, recorded, u, sampling, noise), [len(row.completion) for row in some])

    found = policy.examine([row.prompt for row in said], [row.completion for row in said], look)
    slack = tolerance(noise, sampling.temperature)
    report.slack = max(report.slack, slack)
    episodes: dict[int, Surprise] = {}
    for i, row in enumerate(said):
        report.replies, report.tokens = report.replies + 1, report.tokens + len(row.completion)
        if not found[i].usable.all():
            report.wrong("support", row.where, "the model's logits are not finite numbers here.")
            continue
        _judge_reply(row, found[i], policy, sampling, slack, report)
        if sampling.temperature > 0:
            rounding = noise / 8 / sampling.temperature
            episodes.setdefault(row.episode, Surprise()).add(found[i], rounding)
            report.surprise.add(found[i], rounding)
    for number, own in episodes.items():
        _typical(own, f"line {number}", RARE + math.log(report.episodes), report)


def _judge_reply(row: Row, e: Evidence, policy: HFPolicy, sampling: Sampling, slack: float, report: Report) -> None:
    greedy = sampling.temperature == 0
    tests: list[tuple[str, np.ndarray, float, str]] = [
        ("logprob", e.drift, slack, "has another log-probability than recorded"),
        ("argmax", e.gap, slack, "is not the most likely token"),
        ("support", np.maximum(e.unlikely, e.outside - slack), 0.0, "is none that this model draws"),
        ("stream", e.miss, slack, "is not what the declared random stream draws"),
    ]
    for test, values, most, words in tests:
        if test in (("support", "stream") if greedy else ("argmax",)) or (test == "stream" and not report.streamed):
            continue
        report.measured(test, values)
        bad = np.flatnonzero(~(values <= most))
        if len(bad):
            k = int(bad[0])
            token, other = (policy.decode([int(t)]) for t in (row.completion[k], e.expected[k]))
            said = f"token {k + 1} ({token!r:.30}) {words}: off by {values[k]:.3g}, and {most:.2g} is tolerated"
            hint = f"; {other!r:.30} is" if test in ("argmax", "stream") and other != token else ""
            report.wrong(test, row.where, f"{said}{hint}.", len(bad))


def _typical(own: Surprise, where: str, enough: float, report: Report) -> None:
    if abs(own.z) > Z and own.evidence > enough:
        words = "less likely" if own.z < 0 else "more likely"
        report.wrong(
            "typical", where,
            f"{own.tokens} tokens are {words} than samples of this model are: z {own.z:+.1f}, "
            f"and an honest run shows as much with a chance of at most e^-{own.evidence:.0f}.",
        )  # fmt: skip
