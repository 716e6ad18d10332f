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

`Game` is compiled once and never changes; `State` is one play of it.
"""

from __future__ import annotations

from collections.abc import Callable

from seedbench.envs.alfworld.game import Game, bits

__all__ = ["HELP", "NOTHING_HAPPENS", "Game", "State", "bits"]

NOTHING_HAPPENS = "Nothing happens."
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

_CACHED = 128  # texts and command lists (4 KB each) a game remembers before it forgets them all

# A command that can be executed: the method of State and its arguments, an object and a receptacle.
Action = tuple[Callable[["State", int, int], str], int, int]
Moves = tuple[tuple[str, ...], dict[str, Action]]  # the sorted admissible commands, and what each does


class State:
    """One play of a game: about thirty integers. `step` applies a command, `clone` copies the play as it stands."""

    __slots__ = (
        "around", "clean", "cold", "contents", "done_parts", "game", "held", "hot", "left", "lit", "moves", "opened",
        "place", "sliced",
    )  # fmt: skip

    def __init__(self, game: Game):
        self.game = game
        self.reset()

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
        found = game.moves.get(key)
        if found is None:
            actions = self._actions(here, sliceable)
            found = (tuple(sorted(actions)), actions)
            if len(game.moves) >= _CACHED:
                game.moves.clear()
            game.moves[key] = found
        self.moves = found
        return found

    def _actions(self, here: list[int], sliceable: int) -> dict[str, Action]:
        game, held = self.game, self.held
        actions: dict[str, Action] = {command: (State._go, -1, r) for command, r in game.going[self.place]}
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
        text = game.texts.get(key)
        if text is None:
            name = game.receptacles[r]
            if not game.openable >> r & 1:
                text = f"On the {name}, you see {game.named(within)}."
            else:
                text = (
                    f"The {name} is open. In it, you see {game.named(within)}." if opened else f"The {name} is closed."
                )
            if len(game.texts) >= _CACHED:
                game.texts.clear()
            game.texts[key] = text
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
            near = self._within(game.at[self.place])
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
