"""The board: what is ranked, what never is, ranks worked out by hand, and `seedbench board` end to end."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from seedbench import record, stats
from seedbench.core import SeedbenchError
from seedbench.exam import environments
from seedbench.leaderboard import boardfile, files, outcomes, rank, show
from seedbench.leaderboard.board import Table, tables
from seedbench.leaderboard.outcomes import Outcomes, paired
from seedbench.leaderboard.rank import Contender, ranks
from tests import boards
from tests.command import run

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs of every environment, whole, by the three scripted agents."""
    folder = tmp_path_factory.mktemp("runs")
    for agent in ("null", "random", "expert"):
        boards.scripted(folder, agent)
    return folder


def lines(run: Path) -> list[dict[str, Any]]:
    return list(record.read_lines(run / "trajectories.jsonl.gz"))


def floors(runs: Path) -> list[dict[str, Any]]:
    from seedbench.results import load

    return [boards.entry(name, load(runs / name), lines(runs / name)) for name in ("null", "random", "expert")]


def model(
    runs: Path, ident: str, every: int, *, selection: str | None = "dev", needs_env: bool = False, **changes: Any
):
    """An agent that loses every n-th task, counted through the file: an exact figure, known outcomes."""
    number = iter(range(10**6))
    results, said = boards.replayed(runs / "expert", lambda line: next(number) % every != 0, needs_env=needs_env)
    results = results.model_copy(update={"selection": selection})
    return boards.entry(ident, results, said, **changes)


def on(path: Path, entries: list[dict[str, Any]], env: str = "seedbench/ALFWorld-v0") -> Table:
    (table,) = tables(boardfile.load(boards.board(path / "leaderboard.json", entries)), env)
    return table


def row(table: Table, name: str) -> Any:
    (found,) = [r for r in table.rows if r.name == name]
    return found


# ranks


def contenders(**wins: str) -> dict[str, Contender]:
    return {name: Contender([int(c) for c in text], 1) for name, text in wins.items()}


def test_ranks_by_hand() -> None:
    """a beats c on 6 tasks and loses none: p = 2/64; b differs from a on one task: p = 1."""
    table = contenders(a="1" * 10, b="0" + "1" * 9, c="0" * 6 + "1" * 4)
    found = ranks({"t": table})["t"]
    assert {name: s.rank for name, s in found.items()} == {"a": 1, "b": 1, "c": 3}
    assert found["a"].p is None and found["b"].p == 1.0 and found["b"].leader == "a"
    assert found["c"].p is None and stats.mcnemar_exact(6, 0) == 2 / 64 < 0.05


def test_holm_over_environments_keeps_what_one_test_would_part() -> None:
    """p = .03125 alone parts c from a; beside a second environment with p = 1 Holm makes it .0625."""
    apart = contenders(a="1" * 10, c="0" * 6 + "1" * 4)
    alike = contenders(a="1" * 10, c="1" * 10)
    assert ranks({"x": apart})["x"]["c"].rank == 2
    both = ranks({"x": apart, "y": alike})
    assert both["x"]["c"].rank == both["y"]["c"].rank == 1 and both["x"]["c"].p == 0.0625


def test_the_test_is_against_the_leader_and_pairs_by_task() -> None:
    """Equal means whose tasks differ share a rank; a worse one that the test cannot part from the leader shares too."""
    table = contenders(lead="1" * 8 + "0" * 8, other="0" * 8 + "1" * 8, low="1" * 4 + "0" * 12)
    found = ranks({"t": table})["t"]
    assert {s.rank for s in found.values()} == {1} and found["low"].p == stats.mcnemar_exact(4, 0) == 0.125


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.lists(st.booleans(), min_size=12, max_size=12), min_size=1
    )
)
def test_rank_properties(table: dict[str, list[bool]]) -> None:
    given_ = {name: Contender([int(w) for w in wins], 1) for name, wins in table.items()}
    found = ranks({"t": given_})["t"]
    assert set(found) == set(given_)
    best = max(c.mean for c in given_.values())
    for name, s in found.items():
        assert s.rank == 1 + sum(other.rank < s.rank for other in found.values())
        if given_[name].mean == best:
            assert s.rank == 1, "nobody is parted from an equal"
        assert s.p is None or s.p >= 0.05
    assert ranks({"t": dict(reversed(given_.items()))})["t"] == found


def test_several_trials_take_sign_flips() -> None:
    """Gaps in thirds 0, -3, 2, 0: of the four signs of (3, 2), sums as far out as 1 are all: p = 1; 0, 3, 2, 0: two."""
    test = paired([3, 0, 2, 3], 3, [1, 1, 0, 1], 1)
    assert test == (1, 1, pytest.approx(1.0), "exact sign flips")
    assert paired([3, 3, 2, 3], 3, [1, 0, 0, 1], 1) == (2, 0, pytest.approx(0.5), "exact sign flips")
    with pytest.raises(ValueError, match="same tasks"):
        paired([1], 1, [1, 0], 1)


# outcomes


def test_outcomes_of_a_run(runs: Path) -> None:
    found = outcomes.of_lines(lines(runs / "random"))
    sizes = {(o.env, o.split): len(o.wins) for o in found}
    assert list(sizes) == [(env, split) for env in environments("all") for split in ("seen", "unseen")]
    assert sizes["seedbench/ALFWorld-v0", "seen"] == 204 and sizes["seedbench/WebShop-v0", "unseen"] == 240
    from seedbench.results import load

    for o, r in zip(found, load(runs / "random").results, strict=True):
        assert sum(o.counts) / len(o.wins) == r.success.mean
    assert [o.tasks for o in found] == [o.tasks for o in outcomes.of_lines(lines(runs / "expert"))]


def test_outcomes_refuse_nonsense(runs: Path) -> None:
    base = {"env": "e", "split": "s", "task": "t", "success": True, "ended": "terminated"}
    with pytest.raises(SeedbenchError, match="1 to 2 episodes"):
        outcomes.of_lines([base, base, {**base, "task": "u"}])
    with pytest.raises(SeedbenchError, match="36"):
        outcomes.of_lines([base] * 36)
    (error,) = outcomes.of_lines([{**base, "ended": "error"}])
    assert error.wins == "0", "an error is a loss, whatever it claims"
    with pytest.raises(ValueError, match="won 2 times in 1"):
        Outcomes(env="e", split="s", tasks="0" * 64, trials=1, wins="2")


# the table


def test_rows_by_hand(runs: Path, tmp_path: Path) -> None:
    entries = [*floors(runs), model(runs, "good", 10, name="Good", seeds=[7]), model(runs, "poor", 2, name="Poor")]
    table = on(tmp_path, entries)
    assert [r.name for r in table.rows] == ["Good", "Poor", "expert", "random", "null"] and not table.missing
    good = row(table, "Good")
    seen, unseen = good.cells["seen"], good.cells["unseen"]
    lost = [len([i for i in span if i % 10 == 0]) for span in (range(204), range(204, 408))]
    assert seen.mean == (204 - lost[0]) / 204 and seen.ci == stats.wilson(204 - lost[0], 204)
    assert good.gap == pytest.approx(
        (seen.mean - unseen.mean, *stats.newcombe(204 - lost[0], 204, 204 - lost[1], 204)), abs=1e-15
    )
    assert (seen.standing.rank, row(table, "Poor").cells["seen"].standing.rank) == (1, 2)
    assert good.seeds == (7,) and good.selection == "dev" and good.level == "" and not good.outside
    for name, role in (("null", "floor"), ("random", "floor"), ("expert", "ceiling")):
        found = row(table, name)
        assert found.role == role and found.cells["seen"].standing is None
    assert row(table, "expert").privileged


def loses(runs: Path, ident: str, tasks: int, envs: tuple[str, ...]) -> dict[str, Any]:
    """An agent that loses the first tasks of ALFWorld's seen split alone, entered in these environments."""
    left = iter(range(10**6))
    results, said = boards.replayed(
        runs / "expert", lambda x: not (x["env"] == envs[0] and x["split"] == "seen" and next(left) < tasks)
    )
    rows = [r for r in results.results if r.env in envs]
    return boards.entry(ident, results.model_copy(update={"results": rows}), [x for x in said if x["env"] in envs])


def test_splits_are_ranked_apart_and_environments_together(runs: Path, tmp_path: Path) -> None:
    """Six lost tasks: p = 1/32 stands as it is beside the unseen split, and is doubled by a second environment."""
    shop, house = "seedbench/WebShop-v0", "seedbench/ALFWorld-v0"
    best = loses(runs, "best", 0, (house, shop))
    alone = on(tmp_path, [best, loses(runs, "one", 6, (house,))])
    cells = row(alone, "one").cells
    assert (cells["seen"].standing.rank, cells["unseen"].standing.rank) == (2, 1)
    both = on(tmp_path, [best, loses(runs, "two", 6, (house, shop))])
    standing = row(both, "two").cells["seen"].standing
    assert (standing.rank, standing.p, standing.leader) == (1, 2 / 32, "best")


def test_training_seeds_join_into_one_row(runs: Path, tmp_path: Path) -> None:
    """Three seeds: the mean over all episodes, sd over seeds, interval from the bootstrap over tasks."""
    entries = [model(runs, f"m-{n}", n, name="M", seeds=[n], model=f"path-{n}", base_model="B") for n in (3, 5, 9)]
    both = row(on(tmp_path, entries), "M")
    means = [e["results"]["results"][0]["success"]["mean"] for e in entries]
    cell = both.cells["seen"]
    assert cell.mean == pytest.approx(math.fsum(means) / 3, abs=1e-12) and cell.sd == statistics.stdev(means)
    assert cell.ci[0] < cell.mean < cell.ci[1] and both.seeds == (3, 5, 9) and both.ids == ("m-3", "m-5", "m-9")
    assert cell.attempted == 3 * 204 and cell.standing.rank == 1
    assert show.seeds(on(tmp_path, entries), both).startswith("3 seeds [sd ")
    two = row(on(tmp_path, entries[:2]), "M")
    assert two.cells["seen"].sd is None and show.seeds(on(tmp_path, entries[:2]), two) == "2 seeds"
    one = on(tmp_path, entries[:1])
    assert show.seeds(one, one.rows[0]) == "single seed" and one.rows[0].cells["seen"].ci == stats.wilson(
        round(means[0] * 204), 204
    )
    many = on(tmp_path, [model(runs, "m", 3, seeds=[1, 2, 3])])
    assert show.seeds(many, many.rows[0]) == "1 of 3 seeds", "an entry is one run, whatever stands behind it"
    other = [*entries, model(runs, "x", 4, name="M", base_model="another")]
    assert [r.name for r in on(tmp_path, other).rows].count("M") == 2, "another base model is another agent"


def test_who_is_not_ranked_and_why(runs: Path, tmp_path: Path) -> None:
    bad = {"level": "replay", "by": "ci", "date": "2026-01-01", "findings": ["line 3 differs"]}
    silent = model(runs, "silent", 7)
    silent["outcomes"] = []
    liar = model(runs, "liar", 7)
    liar["outcomes"] = model(runs, "x", 9)["outcomes"]  # outcomes of a better run under these figures
    entries = [
        model(runs, "test", 20, selection="unseen"),
        model(runs, "peeks", 30, needs_env=True),
        model(runs, "faulty", 40, verification=bad),
        model(runs, "honest", 9),
        silent,
        liar,
    ]
    table = on(tmp_path, entries)
    why = {r.name: r.outside or r.cells["seen"].why for r in table.rows}
    assert why["honest"] == "" and why["silent"] == why["liar"] == "no outcomes that agree with its figures"
    assert "reported split" in why["test"] and "privileged" in why["peeks"] and "faults" in why["faulty"]
    assert row(table, "honest").cells["seen"].standing.rank == 1
    notes = " ".join(show.notes(table))
    assert "Not ranked: silent, liar" in notes or "Not ranked: liar, silent" in notes
    assert "Nobody has entered null, random, expert here: seedbench eval --agent null --env alfworld" in notes


def test_another_exam_is_another_table(runs: Path, tmp_path: Path) -> None:
    """Another step limit, prompt or parser: never in one table; another temperature: the agent's own choice."""
    one, longer, warmer, partial = (model(runs, name, 5) for name in ("one", "longer", "warmer", "partial"))
    here = "seedbench/ALFWorld-v0"
    longer["results"]["protocol"]["environments"][here]["max_steps"] = 50
    warmer["results"]["protocol"]["environments"][here]["sampling"]["temperature"] = 1.0
    for r in partial["results"]["results"]:
        r["partial"] = True
    found = tables(boardfile.load(boards.board(tmp_path / "b.json", [one, longer, warmer, partial])), here)
    assert sorted([r.name for r in t.rows] for t in found) == [["longer"], ["one", "warmer", "partial"]] or sorted(
        sorted(r.name for r in t.rows) for t in found
    ) == [["longer"], ["one", "partial", "warmer"]]
    assert len({show.title(t, found) for t in found}) == 2
    assert boardfile.find(longer["agent"]["name"], tmp_path / "b.json").id == longer["id"]
    with pytest.raises(SeedbenchError, match="holds no entry nobody: it has"):
        boardfile.find("nobody", tmp_path / "b.json")
    (table,) = [t for t in found if len(t.rows) == 3]
    assert "partial" in row(table, "partial").cells["seen"].why and "partial" in show.marks(row(table, "partial"))


def test_outcomes_are_read_from_the_trajectories_where_the_entry_has_none(runs: Path, tmp_path: Path) -> None:
    made = floors(runs)[1]
    made["outcomes"] = []
    home = tmp_path / "submissions" / "random"
    home.mkdir(parents=True)
    (home / "trajectories.jsonl.gz").write_bytes((runs / "random" / "trajectories.jsonl.gz").read_bytes())
    (entered,) = boardfile.load(boards.board(tmp_path / "leaderboard.json", [made]))
    assert entered.outcomes == tuple(outcomes.of_lines(lines(runs / "random")))


def test_fifty_entries_need_one_file_and_few_tests(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work, not time: the board's file is read once and nothing else, and a table of n agents that share g ranks takes
    at most g n paired tests."""
    made = [model(runs, "m", 2 + n) for n in range(8)]
    entries = floors(runs)
    for n in range(47):  # another id and name, the same figures
        part = {**made[n % 8], "id": f"m-{n}"}
        entries.append({**part, "agent": {**part["agent"], "name": f"agent {n}"}})
    path = boards.board(tmp_path / "leaderboard.json", entries)
    opened, tests = [], []
    real_open, real_paired = files.open_regular, rank.paired
    monkeypatch.setattr(files, "open_regular", lambda path: opened.append(path.name) or real_open(path))
    monkeypatch.setattr(boardfile, "read_lines", lambda path: pytest.fail(f"{path} was read"))
    monkeypatch.setattr(rank, "paired", lambda *args: tests.append(1) or real_paired(*args))
    found = tables(boardfile.load(path))
    show.markdown(found)
    assert opened == ["leaderboard.json"]
    assert sum(len(t.rows) for t in found) == 50 * len(environments("all"))
    groups = sum(len({c.standing.rank for r in t.rows if (c := r.cells[s]).standing}) for t in found for s in t.splits)
    assert groups and 0 < len(tests) <= 47 * groups


def test_markup_in_markdown_is_escaped_once() -> None:
    assert show._escaped("<b>&#60;|x_") == "&#60;b&#62;&#38;\\#60;\\|x\\_"


# the command


def printed(found: list[Table], width: int) -> str:
    console = Console(record=True, width=width, file=open("/dev/null", "w"))  # noqa: SIM115
    show.print_board(found, console)
    return console.export_text()


def test_the_terminal_table_fits(runs: Path, tmp_path: Path) -> None:
    entries = [*floors(runs), model(runs, "m", 3, name="A name of forty characters, give or take", seeds=[0])]
    found = tables(boardfile.load(boards.board(tmp_path / "b.json", entries)))
    for width in (80, 130):
        text = printed(found, width)
        assert all(len(line.rstrip()) <= width for line in text.splitlines())
        assert "single" in text and "floor" in text and "ceiling" in text and "66.7" in text and "verified" in text
    assert "66.7 [59.9, 72.8]" in printed(found, 130) and "59.9–72.8" in printed(found, 80)


def test_board_prints_writes_and_filters(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "<script>alert(1)</script>|`x`\u202e[a](http://e)"
    path = boards.board(tmp_path / "leaderboard.json", [*floors(runs), model(runs, "m", 3, name=nasty)])
    run("board", "--board", path, "--markdown", "--env", "webshop", "--html", tmp_path / "b.html")
    out = capsys.readouterr().out
    assert "### webshop (mini)" in out and "alfworld" not in out and "| expert (ceiling, privileged) | - | 100.0" in out
    assert "<script" not in out and "\u202e" not in out and "\\|\\`x\\`\\\\u202e\\[a\\](http://e)" in out
    page = (tmp_path / "b.html").read_text()
    assert "alert(1)</script>" not in page and "&lt;script&gt;" in page and "\u202e" not in page
    run("board", "--board", path)
    assert "alfworld (mini)" in capsys.readouterr().out
    run("board", "--board", path, "--html", tmp_path, code=2)
    run("board", "--board", path, "--env", "all", code=2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"schema": "seedbench.board/2", "entries": []}', "has the schema"),
        ('{"schema": "seedbench.board/1", "entries": [{}]}', "entry 0, is not valid"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_board(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(SeedbenchError, match=why):
        boardfile.load(tmp_path / "b.json")


def test_missing_twice_and_empty(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SeedbenchError, match="--board FILE"):
        boardfile.load(tmp_path / "none.json")
    with pytest.raises(SeedbenchError, match="null twice"):
        boardfile.load(boards.board(tmp_path / "b.json", floors(runs)[:1] * 2))
    run("board", "--board", boards.board(tmp_path / "e.json", []), "--html", tmp_path / "e.html")
    assert "The board is empty." in capsys.readouterr().out + (tmp_path / "e.html").read_text()


def test_the_committed_board_is_what_its_submissions_say() -> None:
    board = ROOT / "leaderboard" / "leaderboard.json"
    assert boardfile.disagreements(board) == []
    show.markdown(tables(boardfile.load(board)))
