"""The exam: which environments, splits and tasks a run plays, and under which protocol.

Nothing is written here. Whatever can be wrong with a flag or a data folder is found before a run folder exists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import pydantic.dataclasses

from seedbench.core import Message, Mode, Preset, Sampling, SeedbenchError, Task, TextEnv, View
from seedbench.prompts import Prompt
from seedbench.remote import connect, served_by
from seedbench.rollout import Episode

SPLITS = ("train", "dev", "seen", "unseen", "paper")
STATIC = "static"  # the skill that is a text of the bank, by the kind of task
BANK = "seedbench.baselines.skills.bank"
STATED = ("seed", "trials", "limit", "preset", "parse", "skill", "backend")  # of Config, for all environments alike


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid", strict=True))
class Config:
    """Everything that decides a run; it is what run.json holds, and all that --resume needs."""

    agent: str
    env: str = "all"
    split: str = "seen,unseen"
    data: str = "mini"
    trials: int = 1
    limit: int | None = None
    seed: int = 0
    skill: str = ""  # the text of the lesson that the agent sees at every turn, or STATIC
    parse: Mode = "strict"
    preset: str = "seedbench"
    backend: str | None = None
    retriever: str | None = None
    top_k: int | None = None
    judge: str | None = None
    max_steps: int | None = None
    history: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    batch: int = 64
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 0
    chat_template: str | None = None
    max_prompt_tokens: int | None = None  # None: what the model's context leaves
    selection: str | None = None
    server: str | None = None  # the URL of `seedbench serve`; results do not depend on it

    def __post_init__(self) -> None:
        if self.server is not None:
            for name in ("data", "backend", "retriever", "top_k", "judge"):
                if getattr(self, name) not in (None, "mini"):
                    name = name.replace("_", "-")
                    raise SeedbenchError(f"--{name} is the server's own choice: leave it out, or leave out --server.")
            if self.agent == "expert":
                raise SeedbenchError("--agent expert reads the state, which stays on the server: leave out --server.")
        least = {
            "trials": 1,
            "limit": 1,
            "max_steps": 1,
            "history": -1,
            "batch": 1,
            "seed": 0,
            "threads": 0,
            "top_k": 1,
            "max_prompt_tokens": 1,
        }
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise SeedbenchError(f"--{name.replace('_', '-')} is {value}: it must be at least {low}.")


@dataclass(frozen=True)
class Exam:
    """One environment's part of a run: how it is made, prompted and sampled, and its tasks by split."""

    env_id: str
    make: partial[TextEnv]
    prompt: Prompt
    sampling: Sampling
    tasks: dict[str, tuple[Task, ...]]
    partial: dict[str, bool]  # --limit left tasks of the split out
    pinned: dict[str, bool]
    protocol: dict[str, Any]
    data: str
    slots: int  # episodes under way at a time
    skill: str  # as Config has it

    def first_prompt(self) -> list[Message]:
        """The messages of the first task's first turn."""
        task = next(tasks[0] for tasks in self.tasks.values() if tasks)
        env = self.make()
        observation, info = env.reset(seed=0, options={"task": task.id})
        messages = self.prompt.render(View(info["goal"], observation, tuple(info["admissible"]), (), self.hint(task)))
        env.close()
        return messages

    def written_prompt(self) -> list[Message]:
        """The first prompt for people to read, as records hold prompts as digests only; none where it is withheld."""
        return [] if self.make().withheld else self.first_prompt()

    def hint(self, task: Task) -> str:
        """The lesson that the agent sees at every turn of a task; "" for none."""
        return import_module(BANK).static(task) if self.skill == STATIC else self.skill

    def episodes(self, config: Config) -> Iterator[Episode]:
        """Manifest order: split by split, task by task, trial by trial."""
        for tasks in self.tasks.values():
            for task in tasks:
                for trial in range(config.trials):
                    yield Episode(task, config.seed, trial, self.hint(task))


def environments(names: str) -> list[str]:
    """Gymnasium ids for a comma list of short names (`alfworld`), ids, or `all`."""
    known = {spec.name.lower(): id for id, spec in gym.registry.items() if spec.namespace == "seedbench"}
    if names == "all":
        return list(known.values())
    ids = {**known, **{env_id.lower(): env_id for env_id in known.values()}}
    chosen = []
    for name in filter(None, (n.strip() for n in names.split(","))):
        if name.lower() not in ids:
            raise SeedbenchError(
                f"{name} is not an environment: there are {', '.join(known)} (--env takes a comma list, or all)."
            )
        chosen.append(ids[name.lower()])
    if not chosen:
        raise SeedbenchError(f"--env is empty: give a comma list of {', '.join(known)}, or all.")
    return list(dict.fromkeys(chosen))


def splits(names: str) -> list[str]:
    """Split names of a comma list; `all` is every split but `paper`, which repeats others' tasks."""
    chosen: list[str] = []
    for name in (n.strip() for n in names.split(",")):
        if name != "all" and name not in SPLITS:
            raise SeedbenchError(f"--split {name or 'is empty'}: give a comma list of {', '.join(SPLITS)}, or all.")
        chosen += SPLITS[:-1] if name == "all" else [name]
    return list(dict.fromkeys(chosen))


def plan(config: Config) -> list[Exam]:
    """Load every environment and list every task. Raises SeedbenchError for data that is not there or not right."""
    ids = environments(config.env) if config.server is None or config.env != "all" else [served_by(config.server)]
    if config.server is not None and len(ids) > 1:
        raise SeedbenchError("--server serves one environment: name it with --env, or leave out --env.")
    if config.data != "mini" and len(ids) > 1:
        raise SeedbenchError("--data DIR holds the files of one environment: name it with --env (alfworld, say).")
    return [_exam(env_id, config) for env_id in ids]


def plan_one(config: Config) -> Exam:
    """As `plan`, for what takes one environment. Raises SeedbenchError for several, before any is loaded."""
    if len(environments(config.env)) > 1:
        raise SeedbenchError(f"--env {config.env} names several environments: train on one.")
    return plan(config)[0]


def _exam(env_id: str, config: Config) -> Exam:
    kwargs: dict[str, Any] = {} if config.server else {"data": config.data}
    make: Any = connect(config.server, env_id) if config.server else partial(make_env, env_id)
    probe: TextEnv = make(**kwargs)
    preset = preset_of(probe, env_id, config.preset)
    if config.server:
        _same_rules(probe, config, preset)
    else:
        kwargs |= preset.options
    if (steps := config.max_steps or preset.max_steps) is not None:
        kwargs["max_steps"] = steps
    given = {name: getattr(config, name) for name in ("backend", "retriever", "top_k", "judge")}
    kwargs |= {name: value for name, value in given.items() if value is not None}
    probe = make(**kwargs)
    history = preset.history if config.history is None else config.history
    prompt = probe.PROMPT if history is None else dataclasses.replace(probe.PROMPT, history=history)
    drawn = {k: getattr(config, k) for k in ("temperature", "top_p", "max_new_tokens")}
    sampling = dataclasses.replace(preset.sampling, **{k: v for k, v in drawn.items() if v is not None})
    protocol = {
        "digest": probe.digest(),
        "replay": probe.replay,
        "max_steps": probe.max_steps,
        "prompt": prompt.name,
        "prompt_digest": prompt.digest(),
        "history": prompt.history,
        "sampling": dataclasses.asdict(sampling),
    }
    if probe.SETTINGS:
        protocol["settings"] = {name: getattr(probe, name) for name in probe.SETTINGS}
    names = splits(config.split)
    whole = {name: probe.tasks(name) for name in names}
    tasks = {name: tuple(all_of_it[: config.limit]) for name, all_of_it in whole.items()}
    part = {name: len(tasks[name]) < len(whole[name]) for name in names}
    pinned = {name: probe.pinned(name) for name in names}
    data = "mini" if probe.data == "mini" else "real"
    slots = min(config.batch, probe.max_sessions or config.batch)
    made = partial(make, **kwargs)
    exam = Exam(env_id, made, prompt, sampling, tasks, part, pinned, protocol, data, slots, config.skill)
    for task in (of_split[0] for of_split in tasks.values() if of_split):
        exam.hint(task)  # an environment without a bank is found now
    return exam


def preset_of(env: TextEnv, env_id: str, name: str) -> Preset:
    """The environment's preset of that name. Raises SeedbenchError where it has none."""
    if name not in env.PRESETS:
        raise SeedbenchError(f"--preset {name} is not known to {env_id}: it has {', '.join(env.PRESETS)}.")
    return env.PRESETS[name]


def _same_rules(probe: TextEnv, config: Config, preset: Preset) -> None:
    """Raises SeedbenchError where the server plays by other settings than the preset's, which it alone can choose."""
    for name, value in preset.options.items():
        if (there := getattr(probe, name, None)) != value:
            raise SeedbenchError(
                f"--preset {config.preset} plays with {name}={value}, {config.server} with {name}={there}: "
                f"give the preset that the server was started with, or start it with --preset {config.preset}."
            )


def make_env(env_id: str, **kwargs: Any) -> TextEnv:
    """gymnasium.make without wrappers. Raises SeedbenchError for a setting that the environment does not have."""
    try:
        env = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    except TypeError as error:
        raise SeedbenchError(f"{env_id} does not take these settings ({error}): leave that option out.") from error
    assert isinstance(env, TextEnv)
    return env


def protocol(config: Config, exams: Iterable[Exam]) -> dict[str, Any]:
    """What results.json says of how the exam was held."""
    return {
        **{k: getattr(config, k) for k in STATED},
        "environments": {exam.env_id: exam.protocol for exam in exams},
    }
