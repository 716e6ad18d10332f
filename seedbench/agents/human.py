"""A person at the terminal: `seedbench play ENV`, and `--agent human`.

The person plays an episode to its end on copies of the environment, where each step can be taken back; then play()
gets the actions that are left, one a turn. So what is recorded is an episode like any other, and play() stays the one
loop. What an environment says is untrusted: it is never read as markup, and control characters are spelled out.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.text import Text

from seedbench.agents.scripted import say
from seedbench.core import Agent, Reply, SeedbenchError, Task, TextEnv, UnsupportedError, View, stream
from seedbench.exam import SPLITS, environments, make_env
from seedbench.rollout import Episode, play
from seedbench.view import visible

HELP = """\
  a number   the action with that number
  any text   that action, as it stands; =12 is the text 12
  h          history: what was done and seen
  u          undo the last step
  ?          this help
  q          leave (Ctrl-D and Ctrl-C, too)"""


class Left(KeyboardInterrupt):
    """The person went away in the middle of an episode, which is not recorded."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the episode: the environment there (None if it has no copies), what it shows, and what led to it."""

    env: TextEnv | None
    observation: str
    admissible: tuple[str, ...]
    action: str = ""
    refused: str = ""  # why the environment did not accept `action`
    over: str = ""  # how the episode ended, "" while it goes on
    won: bool = False


class Human(Agent):
    """Whoever sits at the keyboard. Undo looks into the environment, hence needs_env."""

    name = "human"
    needs_env: ClassVar[bool] = True
    interactive: ClassVar[bool] = True

    def __init__(self, console: Console | None = None, ask: Callable[[str], str] = input):
        self.console = console or Console(markup=False, emoji=False, highlight=False)
        self._ask = ask
        self._plans: dict[int, deque[tuple[str, str]]] = {}  # by environment: what was seen, what is to be done on it

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        """The next action of each episode. Raises Left, a KeyboardInterrupt, when the person leaves."""
        assert envs is not None
        return [self._turn(view, env) for view, env in zip(views, envs, strict=True)]

    def _turn(self, view: View, env: TextEnv) -> Reply:
        plan = self._plans.get(id(env), deque()) if view.history else deque()
        if plan and plan[0][0] != view.observation:
            self._print("The episode went another way than its copy: go on from here.")
            plan.clear()
        if not plan:
            plan = self._plans[id(env)] = deque(self._episode(view, env))
        return say(env, plan.popleft()[1])

    def _episode(self, view: View, env: TextEnv) -> list[tuple[str, str]]:
        """Play from `view` to the end; returns observations with the actions taken on them.

        Only one of them where the environment cannot be copied: then nothing can be taken back.
        """
        try:
            path = [Moment(env.clone(), view.observation, view.admissible)]
        except UnsupportedError:
            path = [Moment(None, view.observation, view.admissible)]
        before = len(view.history)
        self._print(f"\nTask: {view.goal}" + (f"\nLesson: {view.hint}" if view.hint else ""))
        self._print("Type an action or its number; h history, u undo, ? help, q leave.")
        if env.TYPED:
            self._print(env.TYPED)
        self._show(path[0], before, env)
        while not path[-1].over or not path[-1].won:
            line = self._read(before + len(path) - 1, bool(path[-1].over))
            if line == "u":
                if len(path) == 1:
                    self._print("There is no step to take back.")
                    continue
                path.pop()
                self._show(path[-1], before + len(path) - 1, env)
            elif line == "h":
                self._history(view, path)
            elif line == "?":
                self._print(HELP)
            elif path[-1].over:
                break
            elif action := self._choose(line, path[-1].admissible, env):
                if path[-1].env is None:
                    return [(view.observation, action)]
                path.append(_step(path[-1].env, action))
                self._show(path[-1], before + len(path) - 1, env)
        return [(seen.observation, done.action) for seen, done in pairwise(path)]

    def _choose(self, line: str, admissible: Sequence[str], env: TextEnv) -> str:
        """The action that a line means; "" after saying why it means none."""
        if not line:
            self._print("Type an action or its number; ? shows the help.")
            return ""
        if line.isdecimal() and admissible:
            if len(line) > 6 or not 1 <= int(line) <= len(admissible):
                self._print(f"There is no action {line[:6]}: they go from 1 to {len(admissible)}.")
                return ""
            line = admissible[int(line) - 1]
        line = line[1:] if line.startswith("=") else env.typed(line)
        parsed = env.parse(say(env, line).text)
        if not parsed.action:
            self._print(f"That cannot be read as an action: {parsed.reason}.")
        return parsed.action

    def _read(self, steps: int, over: bool) -> str:
        try:
            line = self._ask("Enter ends the episode, u takes the last step back: " if over else "> ").strip()
        except (EOFError, RuntimeError):  # the latter where there is no standard input at all
            self._print("")
            if over:
                return ""
            _leave(steps)
        except KeyboardInterrupt:
            self._print("")
            _leave(steps)
        except UnicodeDecodeError as error:
            raise SeedbenchError(f"what was typed is not UTF-8 text ({error}): set the terminal to UTF-8.") from error
        if not sys.stdin.isatty():  # the terminal shows what is typed there; from a pipe it is shown here
            self._print(line)
        if line == "q":
            _leave(steps)
        return line

    def _show(self, now: Moment, steps: int, env: TextEnv) -> None:
        if now.refused:
            self._print(f"Not accepted: {now.refused}")
        self._print(f"\n[step {steps} of {env.max_steps}]\n{now.observation}")
        if now.over:
            self._print(f"\n{now.over} after {steps} {'step' if steps == 1 else 'steps'}.")
        elif now.admissible:
            self._print("")
            width = len(str(len(now.admissible)))
            cells = (Text(f"{i:>{width}} {visible(a)}") for i, a in enumerate(now.admissible, 1))
            self._print(Columns(cells, column_first=True, padding=(0, 2)))

    def _history(self, view: View, path: Sequence[Moment]) -> None:
        seen = [o for o, _ in view.history] + [m.observation for m in path]
        done = [a for _, a in view.history] + [m.action for m in path[1:]]
        self._print("Nothing was done yet." if not done else seen[0])
        for number, (action, observation) in enumerate(zip(done, seen[1:], strict=True), 1):
            self._print(f"{number} > {action or '(no action could be read)'}\n{observation}")

    def _print(self, what: str | RenderableType) -> None:
        self.console.print(Text(visible(what)) if isinstance(what, str) else what)


def _step(env: TextEnv, action: str) -> Moment:
    """One step on a copy, so that the moment before stays as it was."""
    env = env.clone()
    observation, _, terminated, truncated, info = env.step(action)
    won = bool(info["won"])
    over = ""
    if terminated or truncated:
        limit = "" if terminated else ": the step limit is reached"
        over = "Won" if won else f"Not won{limit} (score {info['score']:g})"
    return Moment(env, observation, tuple(info["admissible"]), action, info["invalid_reason"], over, won)


def _leave(steps: int) -> NoReturn:
    raise Left(f"Left at step {steps}, not won; this episode is not kept.")


def run(name: str, data: str, split: str, task: str | None, seed: int, settings: Mapping[str, Any]) -> None:
    """`seedbench play`: one episode, of which nothing is kept. Raises SeedbenchError for a name that is not there."""
    if len(ids := environments(name)) != 1:
        raise SeedbenchError(f"{name} names {len(ids)} environments: play one.")
    if split not in SPLITS:
        raise SeedbenchError(f"--split {split} is not known: give one of {', '.join(SPLITS)}.")
    max_steps = settings.get("max_steps", 1)
    if max_steps < 1:
        raise SeedbenchError(f"--max-steps is {max_steps}: it must be at least 1.")
    make = partial(make_env, ids[0], data=data, **settings)
    human = Human()
    try:
        chosen = _pick(make().tasks(split), split, task, seed)
        (episode,) = play(make, [Episode(chosen, seed)], human, slots=1)
    except KeyboardInterrupt as left:
        human.console.print(str(left) or "Stopped.")
        return
    if episode.ended == "error" and not episode.steps:
        raise SeedbenchError(f"{chosen.id} cannot begin ({episode.error}): mend that.")
    if episode.ended == "error":
        raise SeedbenchError(f"{chosen.id} broke off ({episode.error}): play another --task, and report this one.")


def _pick(tasks: Sequence[Task], split: str, wanted: str | None, seed: int) -> Task:
    """The task of that id, or the only one with that text in its id; without a wish, one drawn by the seed."""
    if not tasks:
        raise SeedbenchError(f"--split {split} holds no task: choose another.")
    if wanted is None:
        return tasks[stream(seed, "play", split) % len(tasks)]
    fitting = [t for t in tasks if t.id == wanted] or [t for t in tasks if wanted in t.id]
    if len(fitting) != 1:
        some = ", ".join(t.id for t in (fitting or tasks)[:3])
        raise SeedbenchError(
            f"--task {wanted} fits {len(fitting)} of the {len(tasks)} tasks in {split}: give one id, such as {some}."
        )
    return fitting[0]
