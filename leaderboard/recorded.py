"""The recorded replies of a run beside the prompts that they answered, for the audit.

The prompts come from playing the recorded texts again; what is wrong with a reply before any forward pass is told to
`wrong(test, where, message)`, and only the others are given on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from seedbench.core import Agent, Reply, Sampling, SeedbenchError, TextEnv, View
from seedbench.exam import Exam
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.run import TOKENS, TRAJECTORIES, Run, place
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


class _Recorded(Agent):
    """Says the recorded texts, so that play() shows what the agent saw."""

    needs_env: ClassVar[bool] = True

    def __init__(self, texts: dict[Key, list[str]]):
        self.texts = texts

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        assert envs is not None
        return [self._reply(len(view.history), env) for view, env in zip(views, envs, strict=True)]

    def _reply(self, turn: int, env: TextEnv) -> Reply | Exception:
        assert env.playing is not None
        task, trial = env.playing
        texts = self.texts[task.env, task.split, task.id, trial]
        return Reply(texts[turn]) if turn < len(texts) else SeedbenchError("the recording ends here")


def rows(run: Run, exam: Exam, chunk: list[Told], policy: HFPolicy, wrong: Wrong) -> Iterator[Row]:
    """The replies of some episodes whose prompt and form are right; what is wrong with the others is told."""
    seen = _play_again(run, exam, chunk, wrong)
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
            if fault := _fault(step, ids, view, policy, exam.sampling):
                wrong(fault[0], where, fault[1])
                continue
            yield Row(where, number, ids["prompt_ids"], ids["completion_ids"], ids["logprobs"], view.stream)


def _play_again(run: Run, exam: Exam, chunk: list[Told], wrong: Wrong) -> dict[Key, list[View]]:
    """What the agent saw at each turn, by episode."""
    config = run.config_for(exam.env_id, "mini")  # of which only seed and parse mode are asked
    known = {(t.split, t.id): t for tasks in exam.tasks.values() for t in tasks}
    episodes, texts = [], {}
    for number, name, line, _ in chunk:
        task = known.get((line["split"], line["task"]))
        episode = Episode(task, config.seed, line["trial"], exam.hint) if task else None
        if episode is None or episode.env_seed != line["seed"]:
            why = "its seed does not follow from the run's" if episode else "the exam holds no such task"
            wrong("prompt", place(number, name), f"{why}: its random streams could be chosen freely.")
            continue
        episodes.append(episode)
        texts[name] = [step["text"] for step in line["steps"]]
    played = play(exam.make, episodes, _Recorded(texts), slots=EPISODES, prompt=exam.prompt, mode=config.parse)
    return {(t.task.env, t.task.split, t.task.id, t.trial): [step.view for step in t.steps] for t in played}


def _fault(step: Record, ids: Record, view: View, policy: HFPolicy, sampling: Sampling) -> tuple[str, str] | None:
    """Which test a reply fails before any forward pass, and how; None if none."""
    if set(ids) != {"prompt_ids", "completion_ids", "logprobs"}:
        return "text", "this turn has no tokens."
    prompt, said, logprobs = ids["prompt_ids"], ids["completion_ids"], ids["logprobs"]
    try:
        expected = list(policy.encode(view.messages))
    except SeedbenchError as error:
        return "prompt", str(error)
    if prompt != expected:
        at = next((k for k, (a, b) in enumerate(zip_longest(prompt, expected)) if a != b), 0)
        return "prompt", f"the ids are not those of the replayed prompt (from id {at + 1} on)."
    limit = sampling.max_new_tokens
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
