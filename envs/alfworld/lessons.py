"""What an episode of ALFWorld teaches, by rule: where the thing is and what to do with it, and where it is not.

What the episode did not see comes from the game's first state: a lesson that says only where not to look carries
little. The goal tells what has to be done. No numbers: "the cabinet" is any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from seedbench.core import Lesson, Trajectory
from seedbench.envs.alfworld.search import kind_of, read_scene

_SEEN = re.compile(r"(?:On the|The) ([a-z]+ \d+)(?:, you see| is open\. In it, you see) ([^.]*)\.")
_THING = re.compile(r"\ban? ([a-z]+ \d+)")
_WITH = {"heat": "with the microwave", "cool": "with the fridge", "clean": "with the sinkbasin"}


def learn(trajectory: Trajectory, problem: str) -> Lesson | None:
    """The lesson of one episode of the game that the PDDL `problem` describes. None for one without a step."""
    if not trajectory.steps:
        return None
    scene = read_scene(problem)
    goal, seen = scene.goal, list(_looks(trajectory))
    there = [(place, [thing]) for thing, place in sorted(scene.inside.items())]
    at = _with(goal.target, seen)
    told = [f"Look for the {goal.target} in the {' and the '.join(at or _with(goal.target, there))} first."]
    if not at:
        told.insert(0, _elsewhere(trajectory, goal.target, {place for place, _ in seen}))
    if goal.lamp:
        lamps = _with(goal.lamp, seen) or _with(goal.lamp, there)
        told.append(f"Take it and use the {goal.lamp} in the {lamps[0]}.")
    else:
        if goal.treatment:
            told.append(f"Then {goal.treatment[0]} it {_WITH[goal.treatment[0]]}.")
        told.append(f"Put {'both' if goal.number == 2 else 'it'} in the {goal.place}.")
    found = f"was in the {' and the '.join(at)}" if at else "was not found"
    done = " and the task was done" if trajectory.success else ", but the task was not done" if at else ""
    return Lesson(f"The {goal.target} {found}{done}.", " ".join(filter(None, told)))


def _looks(trajectory: Trajectory) -> Iterator[tuple[str, list[str]]]:
    """Every look at a place that the agent had put nothing into: the place and the things on or in it."""
    own: set[str] = set()
    for step in trajectory.steps:
        for place, things in _SEEN.findall(step.view.observation):
            yield place, [t for t in _THING.findall(things) if t not in own]
        if step.action.startswith("move "):
            own.add(step.action.removeprefix("move ").partition(" to ")[0])


def _elsewhere(trajectory: Trajectory, target: str, looked: set[str]) -> str:
    """What the search of an episode that did not find `target` showed; "" where no kind of place was seen whole."""
    places = set(_THING.findall(trajectory.steps[0].view.observation))
    kinds = {kind for kind in map(kind_of, places) if all(p in looked for p in places if kind_of(p) == kind)}
    return f"The {target} is not in the {' or the '.join(sorted(kinds))}." if kinds else ""


def _with(kind: str, seen: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """The kinds of places that hold something of `kind`, in the order in which they were seen."""
    return list(dict.fromkeys(kind_of(place) for place, things in seen if kind in map(kind_of, things)))
