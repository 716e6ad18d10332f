"""The domain and the grammar of the published games, out of the `alfworld` package: the real engine needs the texts.

The package's own two files differ from those in the games in three known places. What comes out is checked against
the digests of the published texts, so another version of the package cannot slip in another behaviour.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from seedbench.core import SeedbenchError
from seedbench.envs.alfworld.data import DOMAIN_SHA, GRAMMAR_SHA, GameSource, domain_digest, grammar_digest

_HELP = re.compile(r'feedback :: "#help\.feedback#";\n\n    grammar :: """(.*?)""";', re.DOTALL)
_UNKNOWN = "Your task is to: UNKNOWN GOAL."


def game_json(source: GameSource) -> str:
    """A game.tw-pddl file for an embedded game. Raises SeedbenchError without alfworld 0.4.2."""
    domain, grammar = _texts()
    line = json.dumps(source.task, ensure_ascii=False)[1:-1]
    game = {"pddl_domain": domain, "grammar": grammar.replace(_UNKNOWN, line), "pddl_problem": source.problem}
    return json.dumps({**game, "solvable": True, "walkthrough": []})


@lru_cache(maxsize=1)
def _texts() -> tuple[str, str]:
    try:
        from alfworld import info
    except ImportError as error:
        raise SeedbenchError(
            "The real ALFWorld engine is not installed; install it with `pip install -e '.[alfworld]'`."
        ) from error
    domain = Path(info.ALFRED_PDDL_PATH).read_text(encoding="utf-8")
    domain = domain.replace(";(receptacleType ?r SinkType)", "(receptacleType ?r SinkType)")
    domain = domain.removesuffix("\n)\n") + ")\n"
    grammar = Path(info.ALFRED_TWL2_PATH).read_text(encoding="utf-8")
    grammar = _HELP.sub(_plain_help, grammar)
    if (domain_digest(domain), grammar_digest(grammar)) != (DOMAIN_SHA, GRAMMAR_SHA):
        raise SeedbenchError(
            "The installed alfworld is not the version whose games seedbench plays; install alfworld==0.4.2."
        )
    return domain, grammar


def _plain_help(found: re.Match[str]) -> str:
    """The games say what `help` prints as a plain string, the package as a production of one rule."""
    text = json.loads(found[1])["help.feedback"][0]["rhs"]
    return f'feedback :: "{text}";'
