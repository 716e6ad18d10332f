"""What an episode of ALFWorld teaches, by rule: where the thing was and what to do with it, or where it was not.

Everything said was seen in the episode; the goal tells what had to be done. No numbers: "the cabinet" is any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from seedbench.core import Lesson, Trajectory
from seedbench.envs.alfworld.search import Goal, kind_of

_SEEN = re.compile(r"(?:On the|The) ([a-z]+ \d+)(?:, you see| is open\. In it, you see) ([^.]*)\.")
_THING = re.compile(r"\ban? ([a-z]+ \d+)")
_WITH = {"heat": "with the microwave", "cool": "with the fridge", "clean": "with the sinkbasin"}


def learn(trajectory: Trajectory, goal: Goal) -> Lesson | None:
    """The lesson of one episode. None for one without a step."""
    if not trajectory.steps:
        return None
    seen = list(_looks(trajectory))
    at = _kinds(place for place, things in seen if goal.target in map(kind_of, things))
    if not at:
        return _not_found(trajectory, goal, {place for place, _ in seen})
    lamps = _kinds(place for place, things in seen if goal.lamp in map(kind_of, things))
    told = [f"Look for the {goal.target} in the {' and the '.join(at)} first."]
    if goal.lamp:
        told.append(f"Take it and use the {goal.lamp} in the {lamps[0]}." if lamps else f"Then find the {goal.lamp}.")
    else:
        if goal.treatment:
            told.append(f"Then {goal.treatment[0]} it {_WITH[goal.treatment[0]]}.")
        told.append(f"Put {'both' if goal.number == 2 else 'it'} in the {goal.place}.")
    found = f"The {goal.target} was in the {' and the '.join(at)}"
    return Lesson(f"{found} and the task was done." if trajectory.success else f"{found}, but the task was not done.",
                  " ".join(told))  # fmt: skip


def _looks(trajectory: Trajectory) -> Iterator[tuple[str, list[str]]]:
    """Every look at a place that the agent had put nothing into: the place and the things on or in it."""
    own: set[str] = set()
    for step in trajectory.steps:
        for place, things in _SEEN.findall(step.view.observation):
            yield place, [t for t in _THING.findall(things) if t not in own]
        if step.action.startswith("move "):
            own.add(step.action.removeprefix("move ").partition(" to ")[0])


def _not_found(trajectory: Trajectory, goal: Goal, looked: set[str]) -> Lesson:
    places = set(_THING.findall(trajectory.steps[0].view.observation))
    kinds = {kind for kind in map(kind_of, places) if all(p in looked for p in places if kind_of(p) == kind)}
    summary = f"The {goal.target} was not found."
    if not kinds:
        return Lesson(summary, f"Look for the {goal.target} in a new place each time, and open what is closed.")
    return Lesson(summary, f"The {goal.target} is not in the {' or the '.join(sorted(kinds))}. Look elsewhere first.")


def _kinds(places: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(map(kind_of, places)))
