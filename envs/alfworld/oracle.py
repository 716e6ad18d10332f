"""Our own oracle for the fast engine: the next command of a shortest plan among all plans of a few simple shapes.

It reads the whole state, closed receptacles included, and keeps nothing between calls: every call plans anew from the
state at hand, whatever was done before. A plan is `[drop what is in the hand] [fetch] [treat] [deliver]` (twice for
two objects; ended by a lamp for look-at tasks), tried with every object, appliance and receptacle that could serve.
The rest of a plan is again a plan of these shapes, so each step that is followed makes the best plan one shorter, and
the oracle never walks in circles.
"""

from __future__ import annotations

from collections.abc import Iterator

from seedbench.envs.alfworld.engine import Game, State, bits


def next_action(state: State) -> str | None:
    """The first command of the best plan from `state`; None when it is won already or no plan wins."""
    if state.won:
        return None
    best = min(_plans(state), key=lambda plan: len(plan.commands), default=None)
    return best.commands[0] if best and best.commands else None


def goal_progress(state: State) -> float:
    """Share of the goal that holds, in [0, 1]; 1 exactly when the game is won.

    Counted are the goal's literals that actions can change, for the choice of objects and receptacle that has most of
    them true: object in a receptacle of the type (1 part; 2 for two objects, in the same receptacle); clean, hot or
    cool as well (2 parts); lamp lit, agent beside that lamp, object held (3 parts). This is not ALFRED's
    goal-condition success, which also counts steps on the way.
    """
    return state.progress


class _Plan:
    """Commands so far, and what matters of the state that they lead to."""

    __slots__ = ("commands", "game", "opened", "place")

    def __init__(self, game: Game, place: int, opened: int, commands: list[str]):
        self.game, self.place, self.opened, self.commands = game, place, opened, commands

    def copy(self) -> _Plan:
        return _Plan(self.game, self.place, self.opened, self.commands.copy())

    def go(self, r: int) -> _Plan:
        if self.place != self.game.places[r]:
            self.commands.append(f"go to {self.game.receptacles[r]}")
            self.place = self.game.places[r]
        return self

    def reach(self, r: int) -> _Plan:
        """Go there and open it if need be."""
        self.go(r)
        if self.game.openable & ~self.opened & 1 << r:
            self.commands.append(f"open {self.game.receptacles[r]}")
            self.opened |= 1 << r
        return self

    def take(self, o: int, r: int) -> _Plan:
        self.reach(r).commands.append(f"take {self.game.objects[o]} from {self.game.receptacles[r]}")
        return self

    def put(self, o: int, r: int) -> _Plan:
        self.reach(r).commands.append(f"move {self.game.objects[o]} to {self.game.receptacles[r]}")
        return self


def _plans(state: State) -> Iterator[_Plan]:
    game = state.game
    start = _Plan(game, state.place, state.opened, [])
    if game.goal.lamp:
        yield from _look_plans(state, start)
    elif game.goal.count == 2:
        yield from _two_plans(state, start)
    else:
        yield from _place_plans(state, start)


def _sources(state: State, o: int) -> list[int]:
    """The receptacles from which an object can be taken."""
    if not state.game.pickupable >> o & 1:
        return []
    return [r for r, inside in enumerate(state.contents) if inside >> o & 1 and state.game.places[r] >= 0]


def _kinds(state: State, wanted: int) -> list[tuple[int, list[int]]]:
    """Objects of `wanted` with their sources; of objects that are alike in place and properties, only the first."""
    seen: set[tuple[object, ...]] = set()
    kinds = []
    for o in bits(wanted):
        sources = _sources(state, o)
        look = (tuple(sources), state.clean >> o & 1, state.hot >> o & 1, state.cold >> o & 1)
        if sources and look not in seen:
            seen.add(look)
            kinds.append((o, sources))
    return kinds


def _fetches(state: State, start: _Plan, o: int, sources: list[int]) -> Iterator[tuple[_Plan, int]]:
    """Ways to have `o` in the hand, with the receptacle that it comes from; the hand is emptied first."""
    for r in sources:
        if state.held < 0:
            yield start.copy().take(o, r), r
        else:
            for plan in _drops(state, start, r):
                yield plan.take(o, r), r


def _drops(state: State, start: _Plan, source: int) -> Iterator[_Plan]:
    """Ways to put down what is held: here, at the receptacle visited next, or at the cheapest place elsewhere."""
    game, o = state.game, state.held
    fits = [r for r, mask in enumerate(game.fits) if mask >> o & 1 and game.places[r] >= 0]
    near = {start.place, game.places[source]}
    elsewhere = [r for r in fits if game.places[r] not in near]
    elsewhere.sort(key=lambda r: bool(game.openable & ~state.opened & 1 << r))  # the open ones first; stable
    for r in [r for r in fits if game.places[r] in near] + elsewhere[:1]:
        yield start.copy().put(o, r)


def _treatments(state: State, o: int) -> list[tuple[str, int]]:
    """The appliances, with the verb, that would give `o` the goal's property; empty if it has it or needs none."""
    game, want = state.game, state.game.goal.property
    verb, able, where = {
        "": ("", 0, 0),
        "clean": ("clean", game.cleanable, game.cleaners),
        "hot": ("heat", game.heatable, game.heaters),
        "cool": ("cool", game.coolable, game.coolers),
    }[want]
    return [(verb, r) for r in bits(where) if game.places[r] >= 0] if able >> o & 1 else []


def _ready(state: State, o: int) -> bool:
    masks = {"": -1, "clean": state.clean, "hot": state.hot, "cool": state.cold}
    return bool(masks[state.game.goal.property] >> o & 1)


def _place_plans(state: State, start: _Plan) -> Iterator[_Plan]:
    game = state.game
    if state.held >= 0 and game.wanted >> state.held & 1:
        yield from _deliveries(state, start, state.held, -1)
    for o, sources in _kinds(state, game.wanted & ~(1 << state.held if state.held >= 0 else 0)):
        for plan, source in _fetches(state, start, o, sources):
            yield from _deliveries(state, plan, o, source)


def _deliveries(state: State, plan: _Plan, o: int, source: int) -> Iterator[_Plan]:
    """Treat what is in the hand where the goal asks for it, then put it where the goal wants it."""
    game = state.game
    if _ready(state, o):
        treated = [plan]
    else:
        treated = []
        for verb, appliance in _treatments(state, o):
            done = plan.copy().go(appliance)
            done.commands.append(f"{verb} {game.objects[o]} with {game.receptacles[appliance]}")
            treated.append(done)
    for done in treated:
        # An object that was in two receptacles is still in the other one while it is held.
        if any(state.contents[r] >> o & 1 for r in game.targets if r != source):
            yield done
            continue
        for r in game.targets:
            if game.fits[r] >> o & 1 and game.places[r] >= 0:
                yield done.copy().put(o, r)


def _two_plans(state: State, start: _Plan) -> Iterator[_Plan]:
    game, held = state.game, state.held
    for r in game.targets:
        if game.places[r] < 0:
            continue
        there = state.contents[r] & game.wanted
        missing = 2 - there.bit_count()
        begun = start
        fitting = game.wanted & game.fits[r] & ~there
        if held >= 0 and fitting >> held & 1:
            begun = start.copy().put(held, r)
            missing -= 1
            fitting &= ~(1 << held)
        elif held >= 0:
            yield from _fetch_all(state, start, r, fitting, missing, empty=False)
            continue
        yield from _fetch_all(state, begun, r, fitting, missing, empty=True)


def _fetch_all(state: State, start: _Plan, r: int, fitting: int, missing: int, empty: bool) -> Iterator[_Plan]:
    """Bring `missing` (0, 1 or 2) objects of `fitting` to `r`; without `empty`, put down what is held before."""
    if missing == 0:
        yield start
        return
    for o in bits(fitting):
        for source in _sources(state, o):
            plans = [start.copy()] if empty else _drops(state, start, source)
            for plan in plans:
                yield from _fetch_all(state, plan.take(o, source).put(o, r), r, fitting & ~(1 << o), missing - 1, True)


def _look_plans(state: State, start: _Plan) -> Iterator[_Plan]:
    game = state.game
    having: list[_Plan] = []
    if state.held >= 0 and game.wanted >> state.held & 1:
        having = [start]
    else:
        for o, sources in _kinds(state, game.wanted):
            having += [plan for plan, _ in _fetches(state, start, o, sources)]
    for lamp in bits(game.lamps):
        for r in (r for r, inside in enumerate(state.contents) if inside >> lamp & 1 and game.places[r] >= 0):
            for plan in having:
                done = plan.copy().go(r)
                if not state.lit >> lamp & 1:
                    done.commands.append(f"use {game.objects[lamp]}")
                yield done
