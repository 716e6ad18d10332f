"""The export reads back through the hub's own parsers, and says what the figure rests on."""

from __future__ import annotations

import builtins
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench import cli
from seedbench.core import SeedbenchError
from seedbench.leaderboard import exchange
from seedbench.leaderboard.entry import Entry
from tests import boards
from tests.conftest import need
from tests.test_view import a_result, some_results


@pytest.fixture
def entry() -> dict[str, Any]:
    rows = [a_result(n=40), a_result(split="unseen", n=40), a_result("seedbench/WebShop-v0", n=20, trials=2)]
    verified = {"level": "replay", "by": "ci", "date": "2026-01-02", "findings": []}
    results = some_results(rows, kind="local", spec="m").model_copy(update={"selection": "dev"})
    return boards.entry("an-entry", results, name="An: agent #1", url="https://example.org/m", verification=verified)


@pytest.fixture
def hub() -> Any:
    need(find_spec("huggingface_hub") and find_spec("yaml"), "huggingface_hub is not installed")
    import huggingface_hub

    return huggingface_hub


def test_export_end_to_end(entry: dict[str, Any], hub: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import yaml
    from huggingface_hub.repocard_data import model_index_to_eval_results

    path = boards.board(tmp_path / "leaderboard.json", [entry])
    try:
        cli.main(["export", "an-entry", "--board", str(path), "--dataset", "org/set", "--out", str(tmp_path / "o"),
                  "--source", "https://example.org/board"])  # fmt: skip
    except SystemExit as stop:
        assert not stop.code
    assert capsys.readouterr().out.count("\n") == 2
    held = yaml.safe_load((tmp_path / "o" / ".eval_results" / "seedbench.yaml").read_text())
    rows = hub.parse_eval_result_entries(held)
    assert [(r.dataset_id, r.task_id, r.value) for r in rows] == [
        ("org/set", "alfworld_mini_seen", 1.0),
        ("org/set", "alfworld_mini_unseen", 1.0),
        ("org/set", "webshop_mini_seen", 1.0),
    ]
    assert rows[0].source_url == "https://example.org/board" and rows[0].verify_token is None
    assert "100.0 % [91.2, 100.0] (95 %, wilson), 40 tasks;" in rows[0].notes
    assert "verification: replay; checkpoint chosen: dev" in rows[0].notes and "20 tasks x 2 trials" in rows[2].notes
    index = yaml.safe_load((tmp_path / "o" / "model-index.yaml").read_text())["model-index"]
    name, results = model_index_to_eval_results(index)
    assert name == "An: agent #1" and [r.dataset_split for r in results] == ["seen", "unseen", "seen"]
    assert [r.metric_value for r in results] == [1.0] * 3 and results[0].metric_args["tasks"] == 40
    assert results[0].metric_args["ci95"] == list(entry["results"]["results"][0]["success"]["ci"])


@pytest.mark.parametrize(
    ("dataset", "source", "why"),
    [("nothing", None, "no hub id"), ("a/b c", None, "no hub id"), ("a/b", "javascript:alert(1)", r"no http\(s\) URL")],
)
def test_refusals(dataset: str, source: str | None, why: str, entry: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match=why):
        exchange.write(Entry.from_json(entry), dataset, tmp_path, source)


def test_partial_results_are_not_exported(entry: dict[str, Any], tmp_path: Path) -> None:
    entry["results"]["results"][0]["partial"] = True
    with pytest.raises(SeedbenchError, match="partial on alfworld seen"):
        exchange.write(Entry.from_json(entry), "a/b", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["huggingface_hub", "yaml"])
def test_a_missing_package_is_one_sentence(
    missing: str, entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SeedbenchError, match="pip install"):
        exchange.write(Entry.from_json(entry), "a/b", tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing is half written"


def test_an_entry_is_found_by_id_or_folder(entry: dict[str, Any], tmp_path: Path) -> None:
    import json

    from seedbench.leaderboard import boardfile

    path = boards.board(tmp_path / "leaderboard.json", [entry])
    assert boardfile.find("an-entry", path).agent.name == "An: agent #1"
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "entry.json").write_text(json.dumps(entry))
    assert boardfile.find(str(tmp_path / "e"), path) == boardfile.find("an-entry", path)
    with pytest.raises(SeedbenchError, match="no entry other: it has an-entry"):
        boardfile.find("other", path)
