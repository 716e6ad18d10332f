"""ALFWorld's text game in plain Python, equal to the real engine byte for byte.

The real one (TextWorld over Fast Downward, with ALFWorld's names) takes 40 ms a step; this one takes microseconds. What
looks odd here is the real engine's behaviour, and kept:

* an object can be examined only while it is held (a typing slip in the domain empties the other condition);
* `go to` a receptacle at the present spot is not admissible, and `look` names every receptacle at the spot;
* `look` at the start, where no receptacle is, sees "nothing", though the welcome text lists the whole room;
* an object taken from one receptacle and put into another at the same spot is seen "next to it" as well;
* heating, cooling, cleaning and lamps do not care whether a door is open; lamps never turn off;
* what lies in a receptacle object (a mug, a bowl) is fixed text: taking it out changes nothing there;
* an object may be in two receptacles at once, and taking it from one leaves it in the other.

`Game` is compiled once and never changes; `State` is one play of it. Sets of objects are integers with one bit an
object, in the order of their ids, which is the order in which the engine lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from seedbench.core import SeedbenchError
from seedbench.envs.alfworld.problem import Problem, parse_problem

NOTHING_HAPPENS = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
CLEANERS = ("sinktype", "sinkbasintype")
HEATERS = ("microwavetype",)
COOLERS = ("fridgetype",)
KNIVES = ("knifetype", "butterknifetype")

_CACHED = 4096  # texts and command lists a game remembers before it forgets them all


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _listed(items: list[str]) -> str:
    if len(items) < 2:
        return items[0] if items else "nothing"
    return ", ".join(items[:-1]) + ", and " + items[-1]


def _names(ids: Iterable[str]) -> dict[str, str]:
    """ALFWorld's names: the type and a number, the highest number to the lowest id."""
    kinds = {}
    for name in sorted(ids):
        kind, bar, _ = name.partition("_bar_")
        kinds[name] = (kind + "basin" if "basin" in name else kind) if bar else ""
    left = Counter(kinds.values())
    names = {}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}" if kind else f"{name} "
        left[kind] -= 1
    return names


# A command that can be executed: the method of State and its arguments, an object and a receptacle.
Action = tuple[Callable[["State", int, int], str], int, int]
Moves = tuple[tuple[str, ...], dict[str, Action]]  # the sorted admissible commands, and what each does


class Game:
    """One compiled game: everything that no action changes. Objects, receptacles and locations are numbers.

    Raises SeedbenchError where `problem` is not a problem of ALFWorld's domain.
    """

    def __init__(self, problem: str, task: str):
        parsed = parse_problem(problem)
        self.task = task  # the whole line: "Your task is to: ..."
        self.goal_line = task.partition(": ")[2] or task
        self.goal = parsed.goal
        self._name(parsed)
        self._receptacles(parsed)
        self._objects(parsed)
        self._moves: dict[tuple[int, ...], Moves] = {}
        self._texts: dict[tuple[int, bool, int], str] = {}

    def _name(self, parsed: Problem) -> None:
        facts = parsed.facts
        names = _names({argument for rows in facts.values() for row in rows for argument in row})
        otype = _single(facts["objecttype"], "object type")
        rtype = _single(facts["receptacletype"], "receptacle type")
        where = _single(facts["receptacleatlocation"], "receptacle location")
        start = _single(facts["atlocation"], "place of the agent")
        if len(start) != 1:
            raise SeedbenchError("an ALFWorld game needs exactly one agent at one location; generate the game again.")
        objects = {o for rows in ("objecttype", "inreceptacle", "objectatlocation") for o, *_ in facts[rows]}
        objects |= {o for row in facts["inreceptacleobject"] for o in row}
        self._object = {o: k for k, o in enumerate(sorted(objects))}
        self._receptacle = {r: k for k, r in enumerate(sorted(where.keys() | rtype.keys()))}
        self._location = {place: k for k, place in enumerate(sorted({*where.values(), *start.values()}))}
        self.objects = [names[o] for o in self._object]  # names by number
        self.receptacles = [names[r] for r in self._receptacle]
        self.otypes = [otype.get(o, "") for o in self._object]
        self.rtypes = [rtype.get(r, "") for r in self._receptacle]
        self.places = [self._location[where[r]] if r in where else -1 for r in self._receptacle]  # location of each
        self.start = self._location[next(iter(start.values()))]

    def _receptacles(self, parsed: Problem) -> None:
        self.at: list[list[int]] = [[] for _ in self._location]  # receptacles by location
        for r, place in enumerate(self.places):
            if place >= 0:
                self.at[place].append(r)
        self.openable = _mask(self._receptacle[r] for (r,) in parsed.facts["openable"] if r in self._receptacle)
        holds: dict[str, set[str]] = {}
        for kind, otype in parsed.facts["cancontain"]:
            holds.setdefault(kind, set()).add(otype)
        by_kind = {kind: _mask(o for o, t in enumerate(self.otypes) if t in kinds) for kind, kinds in holds.items()}
        self.fits = [by_kind.get(kind, 0) for kind in self.rtypes]  # the objects that may be put there
        self.cleaners = _mask(r for r, kind in enumerate(self.rtypes) if kind in CLEANERS)
        self.heaters = _mask(r for r, kind in enumerate(self.rtypes) if kind in HEATERS)
        self.coolers = _mask(r for r, kind in enumerate(self.rtypes) if kind in COOLERS)
        located = [r for r, place in enumerate(self.places) if place >= 0]
        go: dict[str, Action] = {f"go to {self.receptacles[r]}": (State._go, -1, r) for r in located}
        self._go = [{c: a for c, a in go.items() if a[2] not in here} for here in self.at]
        listed = [f"a {self.receptacles[r]}" for r in located]
        self.room = f"You are in the middle of a room. Looking quickly around you, you see {_listed(listed)}."

    def _objects(self, parsed: Problem) -> None:
        facts, number = parsed.facts, self._object

        def those(predicate: str) -> int:
            return _mask(number[o] for (o,) in facts[predicate] if o in number)

        self.pickupable, self.toggleable, self.sliceable = those("pickupable"), those("toggleable"), those("sliceable")
        self.cleanable, self.heatable, self.coolable = those("cleanable"), those("heatable"), those("coolable")
        self.cold = those("iscool")
        self.knives = _mask(o for o, kind in enumerate(self.otypes) if kind in KNIVES)
        self.vessels = those("isreceptacleobject")
        self.inner: dict[int, int] = {}  # objects inside a receptacle object
        for o, outer in facts["inreceptacleobject"]:
            if o != outer:
                self.inner[number[outer]] = self.inner.get(number[outer], 0) | 1 << number[o]
        self.contents = [0] * len(self.receptacles)  # objects by receptacle, at the start
        for o, r in facts["inreceptacle"]:
            if r in self._receptacle:
                self.contents[self._receptacle[r]] |= 1 << number[o]
        self.around = [0] * len(self._location)  # objects by location, at the start
        for o, place in facts["objectatlocation"]:
            if place in self._location:
                self.around[self._location[place]] |= 1 << number[o]
        goal = self.goal
        able = {"": -1, "clean": self.cleanable, "hot": self.heatable, "cool": self.coolable}[goal.property]
        self.wanted = _mask(o for o, kind in enumerate(self.otypes) if kind == goal.otype) & able
        self.targets = [r for r, kind in enumerate(self.rtypes) if kind == goal.rtype and goal.rtype]
        self.lamps = _mask(o for o, kind in enumerate(self.otypes) if goal.lamp and kind == goal.lamp) & self.toggleable
        self.parts = 3 if goal.lamp else 2 if goal.property or goal.count == 2 else 1  # of the goal, see State._judge

    def new(self) -> State:
        """A play of this game from its beginning."""
        state = State(self)
        state.reset()
        return state

    def intro(self) -> str:
        """The welcome text before the first command."""
        here = self.at[self.start]
        seen = self.facing(here, []) if here else self.room
        return f"{WELCOME}\n\n{seen}\n\n{self.task}"

    def facing(self, here: list[int], beside: list[str]) -> str:
        return (
            f"You are facing the {_listed([self.receptacles[r] for r in here])}. Next to it, you see {_listed(beside)}."
        )

    def named(self, mask: int) -> str:
        """The objects of `mask` in the engine's words, or "nothing"."""
        return _listed([f"a {self.objects[o]}" for o in bits(mask)])


def _single(rows: Iterable[tuple[str, ...]], what: str) -> dict[str, str]:
    """Pairs as a dict. The planner would take two values for one name; no published game has them."""
    pairs: dict[str, str] = {}
    for name, value in rows:
        if pairs.setdefault(name, value) != value:
            raise SeedbenchError(
                f"{name} has more than one {what}, which the fast engine does not play; drop this game."
            )
    return pairs


class State:
    """One play of a game: about thirty integers. `step` applies a command, `clone` copies the play as it stands."""

    __slots__ = (
        "around", "clean", "cold", "contents", "done_parts", "game", "held", "hot", "left", "lit", "moves", "opened",
        "place", "sliced",
    )  # fmt: skip

    def __init__(self, game: Game):
        self.game = game

    def reset(self) -> str:
        """Begin again; returns the welcome text."""
        game = self.game
        self.place = game.start
        self.held = -1  # the object in the hand
        self.opened = 0
        self.contents = game.contents.copy()
        self.around = game.around.copy()
        self.left: dict[int, int] = {}  # by receptacle: objects taken from it and not put back
        self.cold = game.cold
        self.clean = self.hot = self.lit = self.sliced = 0
        self.moves: Moves | None = None
        self._judge()
        return game.intro()

    def clone(self) -> State:
        """An independent copy."""
        other = State.__new__(State)
        other.game, other.place, other.held, other.opened = self.game, self.place, self.held, self.opened
        other.contents, other.around, other.left = self.contents.copy(), self.around.copy(), self.left.copy()
        other.clean, other.hot, other.cold = self.clean, self.hot, self.cold
        other.lit, other.sliced = self.lit, self.sliced
        other.moves, other.done_parts = self.moves, self.done_parts
        return other

    @property
    def won(self) -> bool:
        return self.done_parts == self.game.parts

    @property
    def progress(self) -> float:
        """Share of the goal that holds now; see oracle.goal_progress."""
        return self.done_parts / self.game.parts

    def admissible(self) -> list[str]:
        """Every command that would be accepted now, in the real engine's order; a list of the caller's own."""
        return list(self.commands())

    def commands(self) -> tuple[str, ...]:
        """The same, shared and not to be changed."""
        return (self.moves or self._find_moves())[0]

    def step(self, command: str) -> tuple[str, bool]:
        """Apply a command; returns what is seen and whether the command was accepted. Any text may be given."""
        action = (self.moves or self._find_moves())[1].get(command.strip())
        if action is None:
            return NOTHING_HAPPENS, False
        method, o, r = action
        return method(self, o, r), True

    def _find_moves(self) -> Moves:
        """The moves of this state, remembered by all that they depend on."""
        game, here = self.game, self.game.at[self.place]
        sliceable = self.around[self.place] & game.sliceable if self.held >= 0 and game.knives >> self.held & 1 else 0
        key = (self.place, self.held, sliceable, *(self.contents[r] << 1 | self.opened >> r & 1 for r in here))
        found = game._moves.get(key)
        if found is None:
            actions = self._actions(here, sliceable)
            found = (tuple(sorted(actions)), actions)
            if len(game._moves) >= _CACHED:
                game._moves.clear()
            game._moves[key] = found
        self.moves = found
        return found

    def _actions(self, here: list[int], sliceable: int) -> dict[str, Action]:
        game, held = self.game, self.held
        actions = dict(game._go[self.place])
        actions["help"] = (State._help, -1, -1)
        actions["inventory"] = (State._inventory, -1, -1)
        actions["look"] = (State._look, -1, -1)
        for r in here:
            name, opened, within = game.receptacles[r], self.opened >> r & 1, self.contents[r]
            actions[f"examine {name}"] = (State._examine, -1, r)
            if game.openable >> r & 1:
                actions[f"{'close' if opened else 'open'} {name}"] = (State._close if opened else State._open, -1, r)
            for o in bits(within & game.toggleable):
                actions[f"use {game.objects[o]}"] = (State._use, o, r)
            reachable = opened or not game.openable >> r & 1
            if held < 0 and reachable:
                for o in bits(within & game.pickupable):
                    actions[f"take {game.objects[o]} from {name}"] = (State._take, o, r)
            if held >= 0:
                self._actions_with_held(actions, r, bool(reachable))
        if held >= 0:
            actions[f"examine {game.objects[held]}"] = (State._examine_object, held, -1)
            for o in bits(sliceable):
                actions[f"slice {game.objects[o]} with {game.objects[held]}"] = (State._slice, o, -1)
        return actions

    def _actions_with_held(self, actions: dict[str, Action], r: int, reachable: bool) -> None:
        game, o = self.game, self.held
        thing, name = game.objects[o], game.receptacles[r]
        if reachable and game.fits[r] >> o & 1:
            actions[f"move {thing} to {name}"] = (State._move, o, r)
        if game.cleaners >> r & game.cleanable >> o & 1:
            actions[f"clean {thing} with {name}"] = (State._clean, o, r)
        if game.heaters >> r & game.heatable >> o & 1:
            actions[f"heat {thing} with {name}"] = (State._heat, o, r)
        if game.coolers >> r & game.coolable >> o & 1:
            actions[f"cool {thing} with {name}"] = (State._cool, o, r)

    # What the commands do. Each returns the text that the engine answers.

    def _help(self, o: int, r: int) -> str:
        return HELP

    def _inventory(self, o: int, r: int) -> str:
        return (
            "You are not carrying anything."
            if self.held < 0
            else f"You are carrying: {self.game.named(1 << self.held)}."
        )

    def _look(self, o: int, r: int) -> str:
        game, here = self.game, self.game.at[self.place]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        taken = 0
        for r in here:
            taken |= self.left.get(r, 0)
        beside = [
            f"a {game.objects[o]}"
            for o in bits(self.around[self.place] & taken)
            for r in here
            if self.left.get(r, 0) >> o & 1
        ]
        return game.facing(here, beside)

    def _go(self, o: int, r: int) -> str:
        self.place = self.game.places[r]
        self.moves = None
        if self.game.lamps:
            self._judge()
        return f"You arrive at {self.game.receptacles[r]}. {self._examine(o, r)}"

    def _examine(self, o: int, r: int) -> str:
        game, within, opened = self.game, self.contents[r], bool(self.opened >> r & 1)
        key = (r, opened, within)
        text = game._texts.get(key)
        if text is None:
            name = game.receptacles[r]
            if not game.openable >> r & 1:
                text = f"On the {name}, you see {game.named(within)}."
            else:
                text = (
                    f"The {name} is open. In it, you see {game.named(within)}." if opened else f"The {name} is closed."
                )
            if len(game._texts) >= _CACHED:
                game._texts.clear()
            game._texts[key] = text
        return text

    def _examine_object(self, o: int, r: int) -> str:
        game, name = self.game, self.game.objects[o]
        if game.vessels >> o & 1:
            return f"This is a normal {name}. In it, you see {game.named(game.inner.get(o, 0))}."
        clean, hot, cold, sliced = (mask >> o & 1 for mask in (self.clean, self.hot, self.cold, self.sliced))
        cut = "sliced " if sliced else ""
        if clean and (hot or cold):
            return f"This is a {'hot' if hot else 'cool'} and clean {cut}{name}."
        if sliced and (clean or hot or cold):
            return f"This is a {'clean' if clean else 'hot' if hot else 'cool'} sliced {name}."
        if clean or hot or cold:
            return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {name}."
        if self.lit >> o & 1:
            return f"This {name} is on."
        return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."

    def _open(self, o: int, r: int) -> str:
        self.opened |= 1 << r
        self.moves = None
        return f"You open the {self.game.receptacles[r]}. {self._examine(o, r)}"

    def _close(self, o: int, r: int) -> str:
        self.opened &= ~(1 << r)
        self.moves = None
        return f"You close the {self.game.receptacles[r]}."

    def _take(self, o: int, r: int) -> str:
        bit = 1 << o
        self.held = o
        self.contents[r] &= ~bit
        self.around[self.place] &= ~bit
        self.left[r] = self.left.get(r, 0) | bit
        self.moves = None
        self._judge()
        return f"You pick up the {self.game.objects[o]} from the {self.game.receptacles[r]}."

    def _move(self, o: int, r: int) -> str:
        bit = 1 << o
        self.held = -1
        self.contents[r] |= bit
        self.around[self.place] |= bit
        if r in self.left:
            self.left[r] &= ~bit
        self.moves = None
        self._judge()
        return f"You move the {self.game.objects[o]} to the {self.game.receptacles[r]}."

    def _clean(self, o: int, r: int) -> str:
        self.clean |= 1 << o
        self._judge()
        return f"You clean the {self.game.objects[o]} using the {self.game.receptacles[r]}."

    def _heat(self, o: int, r: int) -> str:
        self.hot |= 1 << o
        self.cold &= ~(1 << o)
        self._judge()
        return f"You heat the {self.game.objects[o]} using the {self.game.receptacles[r]}."

    def _cool(self, o: int, r: int) -> str:
        self.cold |= 1 << o
        self.hot &= ~(1 << o)
        self._judge()
        return f"You cool the {self.game.objects[o]} using the {self.game.receptacles[r]}."

    def _use(self, o: int, r: int) -> str:
        self.lit |= 1 << o
        self._judge()
        return f"You turn on the {self.game.objects[o]}."

    def _slice(self, o: int, r: int) -> str:
        self.sliced |= 1 << o
        return f"You sliced the {self.game.objects[o]} with the {self.game.objects[self.held]}."

    def _judge(self) -> None:
        """Count the parts of the goal that hold, for the choice of objects and receptacle that has most of them.

        The parts are the goal's literals that actions can change: an object of the type is in a receptacle of the
        type, and has the property; or two of them are in one; or the lamp is lit, the agent beside it, the object held.
        """
        game = self.game
        if game.lamps:
            near = _mask(()) if not game.at[self.place] else self._within(game.at[self.place])
            found = max(((self.lit >> o & 1) + (near >> o & 1) for o in bits(game.lamps)), default=0)
            self.done_parts = found + (self.held >= 0 and game.wanted >> self.held & 1)
        elif game.goal.count == 2:
            self.done_parts = min(
                2, max(((self.contents[r] & game.wanted).bit_count() for r in game.targets), default=0)
            )
        else:
            placed = self._within(game.targets) & game.wanted
            if not game.goal.property:
                self.done_parts = int(placed > 0)
            else:
                mask = {"clean": self.clean, "hot": self.hot, "cool": self.cold}[game.goal.property]
                ready = mask & game.wanted
                self.done_parts = 2 if placed & ready else int(placed > 0 or ready > 0)

    def _within(self, receptacles: list[int]) -> int:
        inside = 0
        for r in receptacles:
            inside |= self.contents[r]
        return inside
