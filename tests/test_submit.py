"""`seedbench submit`: what is entered is verified, whole, written in one step, and nothing is lost or overwritten."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seedbench
from seedbench import cli, record
from seedbench.core import SeedbenchError
from seedbench.leaderboard import store
from seedbench.leaderboard.boardfile import disagreements
from seedbench.leaderboard.entry import Entry
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.submit import about, entry_id
from seedbench.leaderboard.verify import verify
from tests.forge import Copy, forge

NONE: dict[str, Any] = {"agent": {}, "training": {}, "contact": None}


def run(*args: object, code: int = 0) -> None:
    try:
        cli.main([str(a) for a in args])
    except SystemExit as stop:
        assert (stop.code or 0) == code
    else:
        assert code == 0


def play(out: Path, *flags: object) -> Path:
    run("eval", "--agent", "null", "--env", "alfworld", "--split", "seen", "--out", out, "--quiet", *flags)
    return out


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("played") / "run")


@pytest.fixture
def board(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there" / "board.json"


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_an_honest_run_is_entered_and_its_entry_verifies(
    played: Path, board: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--name", "My Agent", "--contact", "me@example.org", "--algorithm", "grpo", "--seeds", 1, 2]
    run("submit", played, "--board", board, *words, "--params", 12, "--url", "https://example.org/a")
    (entry,) = store.read_board(board)
    head = json.loads((played / "results.json").read_text())["chain_head"]
    assert entry.id == f"my-agent-{head[:12]}" and entry.results.chain_head == head
    assert (entry.agent.name, entry.agent.kind, entry.agent.params) == ("My Agent", "null", 12)
    assert (entry.contact, entry.training.algorithm, entry.training.seeds) == ("me@example.org", "grpo", [1, 2])
    assert entry.verification is not None and entry.verification.level == "replay" and not entry.verification.findings
    home = board.parent / "submissions" / entry.id
    assert set(files(home)) == {"entry.json", "trajectories.jsonl.gz"}
    assert (home / "trajectories.jsonl.gz").read_bytes() == (played / "trajectories.jsonl.gz").read_bytes()
    assert Entry.loads((home / "entry.json").read_bytes()) == entry
    run("verify", home)
    assert "verified, level replay" in capsys.readouterr().out
    run("submit", home, "--board", board, code=2)  # an entry is no run


def test_the_same_run_again_changes_nothing(played: Path, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("submit", played, "--board", board)
    before = files(board.parent)
    run("submit", played, "--board", board)
    assert "is already on" in capsys.readouterr().out and files(board.parent) == before
    run("submit", played, "--board", board, "--name", "another name", code=2)
    assert "is on the board as null-" in capsys.readouterr().err and files(board.parent) == before


@pytest.mark.parametrize("name", ["dropped_failure", "edited_observation"])
def test_a_refused_submission_changes_nothing(name: str, played: Path, board: Path, tmp_path: Path) -> None:
    run("submit", played, "--board", board)
    before = files(board.parent)
    forged = Path(shutil.copytree(played, tmp_path / "forged"))
    forge(forged, name)
    run("submit", forged, "--board", board, code=1)
    assert files(board.parent) == before
    run("submit", forged, "--board", board.with_name("new.json"), code=1)
    assert files(board.parent) == before


def test_a_partial_run_verifies_and_is_not_entered(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = play(tmp_path / "part", "--limit", 3)
    run("verify", out)
    assert "is partial" in capsys.readouterr().out
    run("submit", out, "--board", board, code=2)
    assert "is partial" in capsys.readouterr().err and not any(board.parent.iterdir())


def test_submits_at_once_lose_nothing(board: Path, tmp_path: Path) -> None:
    runs = [play(tmp_path / str(seed), "--seed", seed, "--max-steps", 2) for seed in range(4)]
    command = [sys.executable, "-m", "seedbench", "submit"]
    waits = [
        subprocess.Popen([*command, str(out), "--board", str(board), "--workers", "1"], stderr=subprocess.DEVNULL)
        for out in runs
    ]
    assert [w.wait() for w in waits] == [0] * 4
    heads = {json.loads((out / "results.json").read_text())["chain_head"] for out in runs}
    assert {e.results.chain_head for e in store.read_board(board)} == heads and len(heads) == 4


def test_what_a_kill_left_is_replaced(played: Path, board: Path) -> None:
    head = json.loads((played / "results.json").read_text())["chain_head"]
    home = board.parent / "submissions" / f"null-{head[:12]}"
    for stale in (home, home.with_name(f".{home.name}.part")):
        stale.mkdir(parents=True)
        (stale / "half").write_text("x")
    run("submit", played, "--board", board)
    assert set(os.listdir(home.parent)) == {home.name} and not (home / "half").exists()


def test_links_in_the_way_are_refused(played: Path, board: Path, tmp_path: Path) -> None:
    head = json.loads((played / "results.json").read_text())["chain_head"]
    home = board.parent / "submissions" / f"null-{head[:12]}"
    home.parent.mkdir()
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("x")
    home.symlink_to(target)
    run("submit", played, "--board", board, code=2)
    assert files(target) == {"file": b"x"} and not board.exists()
    other = tmp_path / "link.json"
    other.symlink_to(target / "file")
    run("submit", played, "--board", other, code=2)
    assert files(target) == {"file": b"x"}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"entries": []}', '{"schema": "seedbench.board/9", "entries": []}',
     '{"schema": "seedbench.board/1", "entries": [{}]}', '{"schema": "seedbench.board/1", "entries": {}}'],
)  # fmt: skip
def test_a_file_that_is_no_board_is_left_alone(text: str, played: Path, board: Path) -> None:
    board.write_text(text)
    run("submit", played, "--board", board, code=2)
    assert board.read_text() == text and list(board.parent.iterdir()) == [board]


def test_which_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = store.board_file(None)
    assert ours.name == "leaderboard.json" and isinstance(store.read_board(ours), list)
    with pytest.raises(SeedbenchError, match="is a folder"):
        store.board_file(tmp_path)
    new = store.board_file(tmp_path / "new" / "b.json")
    with store.locked_board(new):
        assert new.parent.is_dir() and store.read_board(new) == []
    monkeypatch.setattr(seedbench, "__file__", str(tmp_path / "site-packages" / "seedbench" / "__init__.py"))
    with pytest.raises(SeedbenchError, match="give --board FILE"):
        store.board_file(None)


@given(st.text(max_size=60), st.text("0123456789abcdef", min_size=64, max_size=64))
def test_ids_are_safe_names(name: str, digest: str) -> None:
    made = entry_id(name, digest)
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and made.endswith("-" + digest[:12])
    assert not made.startswith("-") and "--" not in made and len(made) <= 53


def test_ids_by_hand() -> None:
    head = "0123456789abcdef" * 4
    for name, slug in (("../../etc/passwd", "etc-passwd"), ("", "agent"), ("日本", "agent"), ("Café 7B!", "cafe-7b")):
        assert entry_id(name, head) == f"{slug}-0123456789ab"


def test_words_from_a_file(tmp_path: Path) -> None:
    held = {"agent": {"name": "A", "params": 3}, "training": {"seeds": [1]}, "contact": "c"}
    (tmp_path / "a.json").write_text(json.dumps({**held, "verification": {"level": "reproduced"}}))
    (tmp_path / "a.toml").write_text('contact = "c"\n[agent]\nname = "A"\nparams = 3\n[training]\nseeds = [1]\n')
    for name in ("a.json", "a.toml"):
        assert about(tmp_path / name, NONE) == held
    flags = {"agent": {"name": "B", "params": None}, "training": {"algorithm": "sft"}, "contact": "d"}
    said = about(tmp_path / "a.json", flags)
    assert said["agent"] == {"name": "B", "params": 3} and said["contact"] == "d"
    assert said["training"] == {"seeds": [1], "algorithm": "sft"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.toml", "= 1", "cannot be read"),
        ("a.json", '{"id": "mine"}', "id: it may hold agent, training and contact"),
        ("a.json", '{"agent": []}', "agent must be a table"),
        ("a.json", '{"agent": {"kind": "local"}}', "agent.kind comes from the run itself"),
        ("none.json", None, "is missing"),
    ],
)
def test_words_that_cannot_be_read(name: str, text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SeedbenchError, match=words):
        about(tmp_path / name, NONE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"agent": {"url": "javascript:alert(1)"}}', "agent.url"),
        ('{"agent": {"hat": "red"}}', "agent.hat"),
        ('{"agent": {"name": ""}}', "agent.name"),
        ('{"agent": {"name": 7}}', "agent.name"),
        ('{"agent": {"params": -1}}', "agent.params"),
        ('{"training": {"seeds": "all"}}', "training.seeds"),
        ('{"contact": ["me"]}', "contact"),
    ],
)
def test_words_that_do_not_fit(
    text: str, words: str, played: Path, board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(text)
    run("submit", played, "--board", board, "--about", tmp_path / "a.json", code=2)
    assert words in capsys.readouterr().err and not any(board.parent.iterdir())


def test_an_edited_entry_is_found(played: Path, board: Path) -> None:
    run("submit", played, "--board", board)
    (home,) = (board.parent / "submissions").iterdir()
    honest = json.loads((home / "entry.json").read_text())

    def found(change: Any) -> str:
        held = json.loads(json.dumps(honest))
        change(held)
        (home / "entry.json").write_text(json.dumps(held))
        return "\n".join(map(str, verify(Run(home), "form")))

    assert found(lambda e: None) == ""
    assert found(lambda e: e["verification"].update(level="reproduced", by="me")) == "", "it is ignored"
    assert "success.mean: says 0.5" in found(lambda e: e["results"]["results"][0]["success"].update(mean=0.5))
    assert "agent.kind: says 'local'".replace("'", '"') in found(lambda e: e["agent"].update(kind="local"))
    assert "skills_at_inference" in found(lambda e: e["agent"].update(skills_at_inference=True))
    assert "protocol.env" in found(lambda e: e["protocol"]["env"].update({"seedbench/ALFWorld-v0": "x"}))
    assert "software.seedbench" in found(lambda e: e["software"].update(seedbench="9"))
    assert "id: says null-0" in found(lambda e: e.update(id="null-0"))
    assert "not valid at id" in found(lambda e: e.update(id="../up"))
    assert "not valid at x" in found(lambda e: e.update(x=1))
    assert "not valid at agent.url" in found(lambda e: e["agent"].update(url="data:text/html,x"))


def test_an_entry_holds_nothing_else(played: Path, board: Path) -> None:
    run("submit", played, "--board", board)
    (home,) = (board.parent / "submissions").iterdir()
    (home / "index.html").write_text("<script>")
    assert "index.html: no file of this name belongs to an entry" in str(verify(Run(home), "form")[0])


def test_tokens_go_along_and_must_have_their_shape(played: Path, board: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(played, tmp_path / "copy"))
    step = {"prompt_ids": [1, 2], "completion_ids": [3], "logprobs": [-0.5]}
    held = [
        {**{k: line[k] for k in ("env", "split", "task", "trial")}, "steps": [step for _ in line["steps"]]}
        for line in Copy.of(copy).lines
    ]
    record.write_gzip_lines(copy / "tokens.jsonl.gz", [*held[:-1], {**held[-1], "steps": [{"prompt_ids": ["x"]}]}])
    run("submit", copy, "--board", board, code=2)
    assert not board.exists() and os.listdir(board.parent / "submissions") == []
    record.write_gzip_lines(copy / "tokens.jsonl.gz", held)
    run("submit", copy, "--board", board)
    (home,) = (board.parent / "submissions").iterdir()
    assert list(Run(home).tokens()) == held and Run(home).has_tokens


def test_the_whole_board_is_verified(played: Path, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("submit", played, "--board", board)
    run("verify", board)
    (home,) = (board.parent / "submissions").iterdir()
    held = json.loads(board.read_text())
    held["entries"][0]["contact"] = "someone else"
    board.write_text(json.dumps(held))
    run("verify", board, "--level", "form", code=1)
    assert "entry.json: it is not the entry of board.json" in capsys.readouterr().out
    home.rename(home.with_name("other"))
    run("verify", board, "--level", "form", code=1)
    said = capsys.readouterr().out
    assert "submissions/other: no entry of the board has this id" in said and "there is no folder submissions/" in said
    board.write_text("{}")
    run("verify", board, code=2)


def test_an_entry_beside_a_run_is_still_the_entry(played: Path, board: Path) -> None:
    """An honest results.json put beside a forged entry.json must not be what is verified."""
    run("submit", played, "--board", board)
    (home,) = (board.parent / "submissions").iterdir()
    shutil.copy(played / "results.json", home)
    assert "results.json: no file of this name belongs to an entry" in str(verify(Run(home), "form")[0])


def test_one_run_under_two_ids_is_found(played: Path, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("submit", played, "--board", board)
    held = json.loads(board.read_text())
    (first,) = held["entries"]
    twin = {**first, "id": f"zz-{first['id']}"}
    twin["agent"] = {**first["agent"], "name": "zz"}
    board.write_text(json.dumps({**held, "entries": [first, twin]}))
    home = shutil.copytree(board.parent / "submissions" / first["id"], board.parent / "submissions" / twin["id"])
    Path(home, "entry.json").write_text(json.dumps(twin))
    run("verify", board, "--level", "form", code=1)
    assert f"{twin['id']}: it is the same run as {first['id']}" in capsys.readouterr().out
    assert disagreements(board) == [f"{twin['id']} is the same run as {first['id']}"]


def test_an_entry_on_published_files_is_skipped_without_them(
    played: Path, board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("submit", played, "--board", board)
    (home,) = (board.parent / "submissions").iterdir()
    held = json.loads(board.read_text())
    held["entries"][0]["results"]["results"][0]["data"] = "real"
    board.write_text(json.dumps(held))
    (home / "entry.json").write_text(json.dumps(held["entries"][0]))
    run("verify", board, code=2)
    said = capsys.readouterr().out
    assert f"skipped: {home.name}: " in said and "--data DIR" in said and "all but 1 entries" in said
    (tmp_path / "none").mkdir()
    run("verify", board, "--data", tmp_path / "none", code=1)
    assert "its exam cannot be held here" in capsys.readouterr().out


def test_entries_refuse_what_is_not_theirs(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not valid at"):
        Entry.from_json({"schema": "seedbench.entry/1"})
    with pytest.raises(Unreadable, match="not a JSON object"):
        Entry.loads(b"[]")
    with pytest.raises(Unreadable, match="NaN"):
        Entry.loads(b'{"x": NaN}')


def test_a_run_that_changes_while_it_is_read(played: Path, board: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Verified as one thing and copied as another: the copy's own hash is what counts."""
    copy = Path(shutil.copytree(played, tmp_path / "copy"))
    real = store.locked_board

    def swapped(path: Path) -> Any:
        it = Copy.of(copy)
        it.lines[0]["steps"][0]["text"] = "other"
        it.save()
        return real(path)

    monkeypatch.setattr(store, "locked_board", swapped)
    run("submit", copy, "--board", board, code=2)
    assert not board.exists() and os.listdir(board.parent / "submissions") == []
