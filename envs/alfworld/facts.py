"""Facts of a game that a teacher may be told: where things are and what serves, never what to do (SSPO, an extension).

They are read off the game's problem, so closed places are no secret here.
"""

from __future__ import annotations

from collections.abc import Iterator

from seedbench.core import Anchor
from seedbench.envs.alfworld.search import kind_of, read_scene

SOURCE = "game"  # the one document of a game: all its facts
MOST = 6


def anchors(problem: str) -> tuple[Anchor, ...]:
    """The facts as anchors, the things that are wanted first."""
    return tuple(Anchor("the house", SOURCE, fact) for fact in facts(problem))[:MOST]


def facts(problem: str) -> Iterator[str]:
    """Where the wanted things are, which of these places are closed, what treats them, where they are to go."""
    scene = read_scene(problem)
    goal = scene.goal
    places = []
    for thing, place in sorted(scene.inside.items()):
        if kind_of(thing) in (goal.target, goal.lamp):
            places.append(place)
            yield f"The {thing} is in or on the {place}."
    if goal.treatment:
        verb, appliance = goal.treatment
        done = {"heat": "hot", "cool": "cool", "clean": "clean"}[verb]
        yield f"The {appliance} is what makes things {done}."
    closed = [place for place in dict.fromkeys(places) if place in scene.openable]
    if closed:
        yield f"Closed at first: {', '.join(closed)}."
    if goal.place:
        yield f"Of the kind {goal.place} there are: {', '.join(p for p in scene.places if kind_of(p) == goal.place)}."
