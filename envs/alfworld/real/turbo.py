"""Caches for TextWorld 1.7.0's PDDL engine that change no output: a step takes 2.5 ms instead of 44.

What the engine does again and again, and what `apply` does about it:

* parses each template and each condition of the grammar whenever it is used      -> parsed once, by text
* deep-copies symbols and contexts, which nobody changes in place                 -> copied one level deep
* translates PDDL to SAS twice in load and twice in reset, half of it for the planner
                                                     -> once a game, and never for the planner, which is not asked
* parses the grammar of a game in each load                                      -> once a game

The grammar's `{expressions}` are interpreted here instead of being evaluated as Python, which also mends the engine
for Python 3.13 (there, locals() no longer takes new names) and keeps a stranger's game from running code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from seedbench.core import SeedbenchError

VERSIONS = {"alfworld": "0.4.2", "textworld": "1.7.0", "fast-downward-textworld": "20.6.4"}  # what this was written for
GAMES = 32  # translations that are remembered, about 2 MB each

Evaluate = Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=4096)
def expression(text: str) -> Evaluate:
    """Compile a grammar expression such as `o.indefinite + ' ' + o.name`, a function of the variables.

    Raises SeedbenchError for more than variables, their names, strings, `+` and `or`; ALFWorld's need no more.
    """
    try:
        return _compiled(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError) as error:
        raise SeedbenchError(
            f"This game's grammar holds the expression {text!r}, which is more than names and texts: it is not run."
        ) from error


def _compiled(node: ast.expr) -> Evaluate:
    match node:
        case ast.Constant(value=str() as value):
            return lambda variables: value
        case ast.Name(id=name):
            return lambda variables: variables[name]
        case ast.Attribute(value=ast.Name(id=name), attr=("name" | "id" | "definite" | "indefinite") as attribute):
            return lambda variables: getattr(variables[name], attribute)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _compiled(left), _compiled(right)
            return lambda variables: first(variables) + second(variables)
        case ast.BoolOp(op=ast.Or(), values=values):
            choices = [_compiled(value) for value in values]
            return lambda variables: (
                next((v for v in (c(variables) for c in choices[:-1]) if v), None) or choices[-1](variables)
            )
    raise ValueError(ast.dump(node))


def apply() -> None:
    """Patch the imported engine, for the life of this process; `VERSIONS` says which engine that must be."""
    import fast_downward
    from textworld.envs.pddl import logic, textgen
    from textworld.envs.pddl import pddl as engine
    from textworld.logic import Rule

    _cache_grammar(textgen, Rule)
    _cache_games(fast_downward, logic, engine)


def _cache_grammar(textgen: Any, rule: Any) -> None:
    parse = lru_cache(maxsize=4096)(textgen._parse_and_convert)

    def parse_and_convert(text: str, rule_name: str, trace: bool = False) -> Any:
        return [_fresh(symbol) for symbol in parse(text, rule_name=rule_name)]

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        copied = dict(context)
        copied["variables"], copied["mapping"] = dict(context["variables"]), dict(context["mapping"])
        return copied

    def replace(self: Any, start: Any) -> list[Any]:
        for production in self._rules.get(str(start), ()):
            if _holds(production, start.context, rule):
                symbols = [_fresh(symbol) for symbol in production.rhs]
                for symbol in symbols:
                    symbol.context = copy_context(start.context)
                return symbols
        return original_replace(self, start)  # raises what it always raised

    def copy(self: Any, context: dict[str, Any]) -> Any:
        fresh = _fresh(self)
        fresh.context = copy_context(context)
        return fresh

    def derive(self: Any, context: Any = None) -> list[Any]:
        return [textgen.TerminalSymbol(expression(self.expression)((context or self.context)["variables"]))]

    original_replace = textgen.ContextSensitiveGrammar.replace
    textgen._parse_and_convert = parse_and_convert
    textgen.copy_context = copy_context
    textgen.ContextSensitiveGrammar.replace = replace
    textgen.Symbol.copy = copy
    textgen.EvalSymbol.derive = derive
    rule.parse_conjunctive_query = staticmethod(lru_cache(maxsize=4096)(rule.parse_conjunctive_query))


def _fresh(symbol: Any) -> Any:
    """A copy of a grammar symbol and of the symbols in it, which share nothing that the engine changes in place."""
    fresh = symbol.__class__.__new__(symbol.__class__)
    fresh.__dict__.update(symbol.__dict__)
    for name in ("symbol", "expression"):  # of a list and of a condition; elsewhere a string
        inner = symbol.__dict__.get(name)
        if hasattr(inner, "context"):
            setattr(fresh, name, _fresh(inner))
    return fresh


def _holds(production: Any, context: Mapping[str, Any], rule: Any) -> bool:
    if not production.condition:
        return True
    found = context["state"].all_assignments(rule.parse_conjunctive_query(production.condition), context["mapping"])
    return next(iter(found), None) is not None


def _cache_games(fast_downward: Any, logic: Any, engine: Any) -> None:
    translate = lru_cache(maxsize=GAMES)(fast_downward.pddl2sas)

    def pddl2sas(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> tuple[Any, str]:
        return (None, "") if optimize else translate(domain, problem)

    def init(self: Any, infos: Any = None) -> None:
        original_init(self, infos)
        self.downward_lib.load_sas_replan = lambda sas: None

    def replan(self: Any, infos: Any) -> list[str]:
        raise SeedbenchError("the cached engine has no planner: ask the oracle (expert) instead.")

    original_init = engine.PddlEnv.__init__
    fast_downward.pddl2sas = pddl2sas
    engine.PddlEnv.__init__ = init
    logic.PddlState.replan = replan
    logic.GameLogic = lru_cache(maxsize=GAMES)(logic.GameLogic)
