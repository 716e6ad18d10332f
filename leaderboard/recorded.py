"""The recorded replies of a run beside the prompts that they answered, for the audit.

The prompts come from playing the recorded texts again; what is wrong with a reply before any forward pass is told to
`wrong(test, where, message)`, and only the others are given on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from seedbench.core import SeedbenchError, Trajectory, View
from seedbench.exam import Exam
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.replay import Stored
from seedbench.leaderboard.run import TOKENS, TRAJECTORIES, Run, place
from seedbench.policy.fit import fit
from seedbench.record import Key, Record, key
from seedbench.rollout import Episode, play

if TYPE_CHECKING:
    from seedbench.policy.hf import HFPolicy

EPISODES, IDS = 64, 1 << 18  # what is held in memory at a time
Wrong = Callable[[str, str, str], None]


class Row(NamedTuple):
    """One reply that is worth a forward pass."""

    where: str
    episode: int
    prompt: Sequence[int]
    completion: Sequence[int]
    logprobs: Sequence[float]
    stream: int


class Told(NamedTuple):
    """One episode of the two files."""

    number: int  # its line, from 1
    name: Key
    line: Record
    tokens: Record


def chunks(run: Run) -> Iterator[tuple[str, list[Told]]]:
    """Ids of environments and some of their episodes, with tokens: as many as memory should hold at a time.

    Raises Unreadable where the two files are not of the same episodes.
    """
    chunk: list[Told] = []
    size = 0
    for number, (line, told) in enumerate(zip_longest(run.lines(), run.tokens()), 1):
        if line is None or told is None or key(line) != key(told):
            longer = f"{TRAJECTORIES if told is None else TOKENS} goes on" if None in (line, told) else "they differ"
            raise Unreadable(f"{TOKENS} and {TRAJECTORIES} are not of the same episodes: at line {number} {longer}.")
        if chunk and (chunk[0].name[0] != line["env"] or len(chunk) >= EPISODES or size >= IDS):
            yield chunk[0].name[0], chunk
            chunk, size = [], 0
        chunk.append(Told(number, key(line), line, told))
        size += sum(len(ids) for step in told["steps"] or () for ids in step.values())
    if chunk:
        yield chunk[0].name[0], chunk


def rows(run: Run, exam: Exam, chunk: list[Told], policy: HFPolicy, wrong: Wrong) -> Iterator[Row]:
    """The replies of some episodes whose prompt and form are right; what is wrong with the others is told."""
    seen = _play_again(run, exam, chunk, wrong)
    most = longest_prompt(run)
    for number, name, line, told in chunk:
        if (views := seen.get(name)) is None:
            continue
        steps, tokens = line["steps"], told["steps"] or []
        if len(steps) != len(tokens) or len(steps) != len(views):
            have = f"{len(steps)} turns are recorded, {len(tokens)} have tokens and {len(views)} can be played again"
            wrong("text", place(number, name), f"{have}.")
            continue
        for turn, (step, ids, view) in enumerate(zip(steps, tokens, views, strict=True)):
            where = f"{place(number, name)}, turn {turn + 1}"
            if fault := _fault(step, ids, view, policy, exam, most):
                wrong(fault[0], where, fault[1])
                continue
            yield Row(where, number, ids["prompt_ids"], ids["completion_ids"], ids["logprobs"], view.stream)


def _play_again(run: Run, exam: Exam, chunk: list[Told], wrong: Wrong) -> dict[Key, list[View]]:
    """What the agent saw at each turn, by episode."""
    known = {(t.split, t.id): t for tasks in exam.tasks.values() for t in tasks}
    episodes, wanted = [], {}
    for number, name, line, _ in chunk:
        task = known.get((line["split"], line["task"]))
        episode = Episode(task, run.configs[0].seed, line["trial"], exam.hint(task)) if task else None
        if episode is None or episode.env_seed != line["seed"]:
            why = "its seed does not follow from the run's" if episode else "the exam holds no such task"
            wrong("prompt", place(number, name), f"{why}: its random streams could be chosen freely.")
            continue
        episodes.append(episode)
        wanted[name] = line
    agent = Stored(line for _, name, line, _ in chunk if name in wanted)
    played = play(exam.make, episodes, agent, slots=EPISODES, prompt=exam.prompt, mode=run.mode)
    return {(t.task.env, t.task.split, t.task.id, t.trial): _views(t, exam, wanted) for t in played}


def _views(t: Trajectory, exam: Exam, lines: dict[Key, Record]) -> list[View]:
    """What was seen; where an environment promises the score alone, as the record has it."""
    views = [step.view for step in t.steps]
    if exam.protocol["replay"] == "exact":
        return views
    steps = lines[t.task.env, t.task.split, t.task.id, t.trial]["steps"]
    past = tuple((step["observation"], step["action"]) for step in steps)
    seen = [replace(v, observation=past[k][0], history=past[:k]) for k, v in enumerate(views[: len(past)])]
    return [replace(v, messages=tuple(exam.prompt.render(v))) for v in seen]


def longest_prompt(run: Run) -> int | None:
    """The --max-prompt-tokens that the run states. Raises Unreadable for what is no number of tokens."""
    most: object = run.results.agent.get("max_prompt_tokens")
    if most is None or (type(most) is int and most > 0):
        return most
    raise Unreadable(f"the agent's max_prompt_tokens is {most!r:.40}, not a number of tokens.")


def _fault(
    step: Record, ids: Record, view: View, policy: HFPolicy, exam: Exam, most: int | None
) -> tuple[str, str] | None:
    """Which test a reply fails before any forward pass, and how; None if none."""
    if set(ids) != {"prompt_ids", "completion_ids", "logprobs"}:
        return "text", "this turn has no tokens."
    prompt, said, logprobs = ids["prompt_ids"], ids["completion_ids"], ids["logprobs"]
    try:
        expected = list(fit(policy, exam.prompt, view, most, exam.sampling.max_new_tokens)[0])
    except SeedbenchError as error:
        return "prompt", str(error)
    if prompt != expected:
        at = next((k for k, (a, b) in enumerate(zip_longest(prompt, expected)) if a != b), 0)
        return "prompt", f"the ids are not those of the replayed prompt (from id {at + 1} on)."
    limit = exam.sampling.max_new_tokens
    if policy.context and len(prompt) + limit > policy.context:
        return "prompt", f"{len(prompt)} ids and {limit} more do not fit into the model's context of {policy.context}."
    if not 1 <= len(said) <= limit or len(said) != len(logprobs):
        return "text", f"{len(said)} ids with {len(logprobs)} log-probabilities, where 1 to {limit} are possible."
    if not 0 <= min(said) <= max(said) < policy.vocabulary or max(logprobs) > 1e-3:
        return "text", "an id is outside the vocabulary, or a log-probability above 0."
    if policy.decode(said).encode("utf-8", "replace").decode() != step["text"]:
        return "text", f"the ids decode to {policy.decode(said)!r:.80}, the record has {step['text']!r:.80}."
    early = any(token in policy.stop_ids for token in said[:-1])
    if early or (said[-1] not in policy.stop_ids and len(said) < limit):
        return "text", "the ids go on after the end of the reply." if early else "the ids stop where no reply ends."
    return None
