"""Level audit: honest runs of a tiny model pass, and what only looks like them falls. No network, random weights."""

from __future__ import annotations

import gzip
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[train]'")

from seedbench import cli, record  # noqa: E402
from seedbench.core import Sampling, SeedbenchError  # noqa: E402
from seedbench.exam import Config  # noqa: E402
from seedbench.leaderboard import audit as level  # noqa: E402
from seedbench.leaderboard.evidence import TILTS, Surprise, split, tolerance, weigh  # noqa: E402
from seedbench.leaderboard.findings import Finding, Options  # noqa: E402
from seedbench.leaderboard.run import Run  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from seedbench.policy.sampling import draw, log_distribution  # noqa: E402
from tests import impostor  # noqa: E402
from tests.impostor import set_agent  # noqa: E402
from tests.tiny import one_torch_thread, tiny_folder  # noqa: E402

CONTEXT = 1536
ALFWORLD = "seedbench/ALFWorld-v0"
Edit = Callable[[list[dict[str, Any]]], Any]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    yield from one_torch_thread()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("audit") / "model", max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def policy(folder: Path) -> HFPolicy:
    return HFPolicy.load(folder, device="cpu")


def config(temperature: float = 1.0, top_p: float = 1.0, **more: Any) -> Config:
    given = {"limit": 2, "max_new_tokens": 6, "max_steps": 6, "temperature": temperature, "top_p": top_p, **more}
    return Config(agent="model", env="alfworld", split="seen", device="cpu", **given)


@pytest.fixture(scope="module")
def run(policy: HFPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run at temperature 1."""
    return impostor.run(policy, impostor.honest, config(), tmp_path_factory.mktemp("run"))


def check(run: Path, folder: Path, **options: Any) -> list[Finding]:
    return level.check_audit(Run(run), Options(model=str(folder), device="cpu", quiet=True, **options))


def kinds_of(found: list[Finding]) -> set[str]:
    assert all(f.level == "audit" and f.message.endswith(".") and "\n" not in f.message for f in found), found
    return {f.where.partition(":")[0] for f in found}


def edited(run: Path, to: Path, edit: Edit) -> Path:
    """A copy of a run whose token lines went through `edit`."""
    shutil.copytree(run, to)
    lines = list(record.read_lines(run / "tokens.jsonl.gz"))
    new = edit(lines)
    record.write_gzip_lines(to / "tokens.jsonl.gz", new if isinstance(new, list) else lines)
    return to


def seedbench(*args: object) -> int:
    try:
        cli.main([str(a) for a in args])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


# Honest runs


@pytest.mark.parametrize("temperature,top_p", [(0.0, 1.0), (0.4, 1.0), (1.0, 0.8), (1e-3, 1.0), (30.0, 0.5)])
def test_an_honest_run_passes(
    temperature: float, top_p: float, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--temperature", temperature, "--top-p", top_p, "--max-new-tokens", 6, "--max-steps", 6, "--limit", 1]
    args = ["eval", "--agent", folder, "--env", "alfworld", "--device", "cpu", "--quiet", *how, "--out", tmp_path / "r"]
    assert seedbench(*args) == 0
    assert seedbench("verify", tmp_path / "r", "--level", "audit", "--model", folder, "--device", "cpu") == 0
    said = capsys.readouterr().out
    assert "verified, level audit" in said and "12 replies" in said


def test_what_was_measured_is_told(run: Path, policy: HFPolicy) -> None:
    report = level.audit(Run(run), {ALFWORLD: policy})
    assert report.findings == [] and not report.counts and report.replies == 12
    assert report.tokens == sum(len(s["completion_ids"]) for t in Run(run).tokens() for s in t["steps"])
    assert report.worst["stream"] <= 1e-3 and report.worst["logprob"] < 1e-4 and abs(report.surprise.z) < 4


def test_a_small_memory_changes_nothing(run: Path, policy: HFPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.leaderboard import evidence, recorded

    whole = level.audit(Run(run), {ALFWORLD: policy})
    monkeypatch.setattr(evidence, "_CELLS", 700)
    monkeypatch.setattr(recorded, "IDS", 1)
    monkeypatch.setattr(policy, "token_budget", 1000)
    parts = level.audit(Run(run), {ALFWORLD: policy})
    assert parts.findings == [] and parts.tokens == whole.tokens
    assert parts.surprise.z == pytest.approx(whole.surprise.z, abs=1e-3)


# Forged runs: whole, chained, replaying


@pytest.mark.parametrize("temperature,test", [(0.0, "argmax"), (0.4, "stream"), (1.0, "stream")])
def test_an_experts_actions_fall_here_and_no_earlier(
    temperature: float, test: str, policy: HFPolicy, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = config(temperature, max_new_tokens=40, max_steps=None)
    out = impostor.run(policy, impostor.expert, c, tmp_path / "r")
    assert all(line["success"] for line in Run(out).lines())
    assert seedbench("verify", out, "--level", "replay") == 0
    assert seedbench("verify", out, "--level", "audit", "--model", folder, "--device", "cpu", "--quiet") == 1
    assert f"audit: {test}: line 1 " in capsys.readouterr().out
    found = kinds_of(check(out, folder))
    assert test in found and "logprob" not in found and "text" not in found and "prompt" not in found


def test_samples_of_another_stream_fall_by_the_stream_alone(policy: HFPolicy, folder: Path, tmp_path: Path) -> None:
    """What every choice among several samples comes to."""

    def other(me: impostor.Impostor, views: Any, envs: Any) -> Any:
        me.state["best"] = {impostor._name(env): 1 for env in envs}
        return impostor.best_of(2)(me, views, envs)

    out = impostor.run(policy, other, config(), tmp_path / "r")
    assert kinds_of(check(out, folder)) == {"stream"}


@pytest.mark.parametrize("declared,played", [(0.4, 1.0), (1.0, 0.4)])
def test_another_temperature_falls_with_and_without_the_stream(
    declared: float, played: float, policy: HFPolicy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = impostor.run(policy, impostor.at(played), config(declared, max_steps=None), tmp_path / "r")
    assert {"stream", "typical"} <= kinds_of(check(out, folder))
    monkeypatch.setattr(level, "STREAMED", ())
    found = check(out, folder)
    assert kinds_of(found) == {"typical"}
    assert ("less likely" if played > declared else "more likely") in found[-1].message


def test_another_top_p_falls(policy: HFPolicy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = impostor.run(policy, impostor.at(1.0), config(1.0, 0.6), tmp_path / "r")  # top-p 0.6 as declared: honest ids
    assert kinds_of(check(out, folder)) == {"logprob"}  # recomputed without top-p
    wide = impostor.run(policy, impostor.expert, config(1.0, 0.3, max_new_tokens=40, limit=1), tmp_path / "w")
    monkeypatch.setattr(level, "STREAMED", ())
    assert "support" in kinds_of(check(wide, folder))


def test_another_checkpoint_falls_by_its_digest_and_without_it(
    policy: HFPolicy, folder: Path, run: Path, tmp_path: Path
) -> None:
    other = tiny_folder(tmp_path / "other", max_position_embeddings=CONTEXT, seed=1)
    assert kinds_of(check(run, other)) == {"agent.revision"}
    forged = impostor.run(policy, impostor.other_model(HFPolicy.load(other, device="cpu")), config(), tmp_path / "r")
    assert "stream" in kinds_of(check(forged, folder))


# Files that do not belong together


def first(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return lines[0]["steps"][0]


def swap_episodes(lines: list[dict[str, Any]]) -> None:
    lines[0]["steps"], lines[1]["steps"] = lines[1]["steps"], lines[0]["steps"]


EDITS: dict[str, tuple[Edit, str]] = {
    "another episode's tokens": (swap_episodes, "prompt"),
    "a prompt with a hint": (lambda ls: first(ls)["prompt_ids"].insert(5, 77), "prompt"),
    "another token": (lambda ls: first(ls)["completion_ids"].__setitem__(0, 70), "text"),
    "an id outside": (lambda ls: first(ls)["completion_ids"].__setitem__(0, 10**6), "text"),
    "a negative id": (lambda ls: first(ls)["completion_ids"].__setitem__(0, -1), "text"),
    "no log-probability": (lambda ls: first(ls)["logprobs"].pop(), "text"),
    "a positive one": (lambda ls: first(ls)["logprobs"].__setitem__(0, 0.5), "text"),
    "another log-probability": (lambda ls: first(ls)["logprobs"].__setitem__(0, -0.5), "logprob"),
    "a step without tokens": (lambda ls: first(ls).clear(), "text"),
    "an episode without tokens": (lambda ls: ls[0].__setitem__("steps", None), "text"),
    "a step too few": (lambda ls: ls[1]["steps"].pop(), "text"),
    "a line too few": (lambda ls: ls[:-1], "tokens.jsonl.gz"),
    "a line too many": (lambda ls: [*ls, ls[-1]], "tokens.jsonl.gz"),
    "another trial": (lambda ls: ls[0].__setitem__("trial", 1), "tokens.jsonl.gz"),
    "a key too many": (lambda ls: ls[0].__setitem__("note", "x"), "tokens.jsonl.gz"),
    "text for ids": (lambda ls: first(ls).__setitem__("prompt_ids", ["1"]), "tokens.jsonl.gz"),
    "true for an id": (lambda ls: first(ls)["prompt_ids"].__setitem__(0, True), "tokens.jsonl.gz"),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_tokens_fall(name: str, run: Path, folder: Path, tmp_path: Path) -> None:
    edit, test = EDITS[name]
    assert kinds_of(check(edited(run, tmp_path / "r", edit), folder)) == {test}


def test_a_reply_ends_where_the_model_ends(run: Path, policy: HFPolicy, folder: Path, tmp_path: Path) -> None:
    def stop_early(lines: list[dict[str, Any]]) -> None:
        step = first(lines)
        step["completion_ids"] = [min(policy.stop_ids), *step["completion_ids"][:-1]]

    def go_on(lines: list[dict[str, Any]]) -> None:
        step = next(s for s in lines[0]["steps"] if len(s["completion_ids"]) == 6)
        step["completion_ids"] += [min(policy.stop_ids)]
        step["logprobs"] += [-1.0]

    for name, edit in (("early", stop_early), ("late", go_on)):
        assert kinds_of(check(edited(run, tmp_path / name, edit), folder)) == {"text"}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", '"x"', "[" * 3000])
def test_numbers_that_are_none_are_refused(text: str, run: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "r")
    file = tmp_path / "r" / "tokens.jsonl.gz"
    raw = gzip.decompress(file.read_bytes()).decode()
    at = raw.index('"logprobs":[') + len('"logprobs":[')
    file.write_bytes(gzip.compress((raw[:at] + text + raw[raw.index(",", at) :]).encode()))
    assert len(check(tmp_path / "r", folder)) == 1


def test_damaged_and_missing_files(run: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "r")
    file = tmp_path / "r" / "tokens.jsonl.gz"
    whole = file.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"not gzip", whole + b"more"):
        file.write_bytes(data)
        assert len(check(tmp_path / "r", folder)) == 1
    file.unlink()
    (found,) = check(tmp_path / "r", folder)
    assert "not possible" in found.message and "tokens.jsonl.gz" in found.message


def test_a_stream_cannot_be_chosen(run: Path, policy: HFPolicy, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "r")
    lines = [{k: v for k, v in line.items() if k not in ("prev", "hash")} for line in Run(run).lines()]
    lines[1]["seed"] += 1
    record.write_chained(tmp_path / "r" / "trajectories.jsonl.gz", lines)
    (found,) = level.audit(Run(tmp_path / "r"), {ALFWORLD: policy}).findings
    assert "line 2" in found.where and "seed does not follow" in found.message


# Which model


def test_no_path_of_a_run_is_followed(run: Path, folder: Path, tmp_path: Path) -> None:
    for k, spec in enumerate(("model", str(folder), "../model", f"./{folder.name}/x", "a/../b")):
        other = set_agent(run, tmp_path / str(k), spec=spec)
        with pytest.raises(SeedbenchError, match="--model"):
            level.check_audit(Run(other), Options(quiet=True))
    assert seedbench("verify", run, "--level", "audit") == 2


@pytest.mark.parametrize("kind", ["api", "custom", "replay", "human", None, 7])
def test_without_an_open_checkpoint_there_is_no_audit(kind: Any, run: Path, folder: Path, tmp_path: Path) -> None:
    (found,) = check(set_agent(run, tmp_path / "r", kind=kind), folder)
    assert "not possible" in found.message


def test_template_and_number_format_are_part_of_the_model(run: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    found = check(run, folder, chat_template=str(tmp_path / "t.jinja"))
    assert {"agent.chat_template_sha256"} == kinds_of(found)
    assert len(check(set_agent(run, tmp_path / "r", dtype="int4"), folder)) == 1


# Scripted agents


def test_scripted_agents_are_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("random", "expert"):
        assert seedbench("eval", "--agent", name, "--env", "alfworld", "--limit", 3, "--out", tmp_path / name) == 0
        assert seedbench("verify", tmp_path / name, "--level", "audit") == 0
    forged = set_agent(tmp_path / "expert", tmp_path / "forged", kind="random", spec="random")
    capsys.readouterr()
    assert seedbench("verify", forged, "--level", "audit") == 1
    assert "says something else" in capsys.readouterr().out


# Evidence


def facts(logits: Any, ids: Any, sampling: Sampling, u: Any = None, noise: float = 1e-3) -> Any:
    recorded = log_distribution(logits, sampling.temperature, sampling.top_p)[0].gather(-1, ids[:, None])[:, 0]
    return weigh(logits, ids, recorded.double().numpy(), u, sampling, noise)


def test_facts_by_hand() -> None:
    p = np.array([0.5, 0.25, 0.125, 0.125])
    logits = torch.tensor(np.log(p))[None].repeat(4, 1)
    e = facts(logits, torch.arange(4), Sampling(1.0), np.array([0.8, 0.6, 0.8, 0.125]))
    entropy = 1.75 * math.log(2)
    np.testing.assert_allclose(e.surprise, np.log(p) + entropy, atol=1e-6)
    np.testing.assert_allclose(e.variance, (0.5 * 1 + 0.25 * 4 + 0.25 * 9 - 1.75**2) * math.log(2) ** 2, atol=1e-5)
    np.testing.assert_allclose(e.gap, np.log(0.5 / p), atol=1e-6)
    # Intervals: [0, .5), [.5, .75), [.75, .875), [.875, 1).
    np.testing.assert_allclose(e.miss, [math.log(4), 0, 0, 2 * math.log(7)], atol=1e-5)
    assert list(e.expected) == [2, 1, 2, 0] and (e.drift < 1e-6).all()
    tilt = TILTS.index(0.5)
    np.testing.assert_allclose(e.cumulants[:, tilt], math.log((p**1.5).sum()) + 0.5 * entropy, atol=1e-5)
    cold = facts(logits, torch.arange(4), Sampling(1.0, 0.7))  # the first two tokens are kept
    assert list(cold.outside > tolerance(1e-3, 1.0)) == [False, False, True, True]
    parts = split(e, [1, 3])
    assert [len(part.gap) for part in parts] == [1, 3] and parts[1].miss[2] == e.miss[3]


@pytest.mark.parametrize("temperature,top_p", [(1.0, 1.0), (0.3, 1.0), (1.0, 0.9), (0.5, 0.3)])
def test_rounding_within_the_bound_is_tolerated_and_little_else(temperature: float, top_p: float) -> None:
    rng = np.random.default_rng(4)
    noise, n, v = 1e-2, 4000, 50
    logits = torch.from_numpy(rng.normal(size=(n, v)) * 3).float()
    there = logits + torch.from_numpy(rng.uniform(-noise, noise, size=(n, v))).float()
    u = rng.random(n)
    u[:2] = 1e-9, 1 - 1e-9
    sampling = Sampling(temperature, top_p)
    far, _ = log_distribution(there, temperature, top_p)
    ids = draw(far, torch.from_numpy(u))
    e = weigh(logits, ids, far.gather(-1, ids[:, None])[:, 0].double().numpy(), u, sampling, noise)
    slack = tolerance(noise, temperature)
    assert (e.miss <= slack).all() and (e.drift <= slack).all() and (e.outside <= slack).all()
    assert (e.unlikely <= 0).all() and (top_p < 0.5 or (e.miss > 0).any())
    chance = torch.from_numpy(rng.random(n))
    independent = facts(logits, draw(log_distribution(logits, temperature, top_p)[0], chance), sampling, u, noise)
    p = log_distribution(logits, temperature, top_p)[0].double().exp()
    same = float((p * p).sum(-1).mean())  # how often two samples agree
    assert (independent.miss <= slack).mean() == pytest.approx(same, abs=0.04)


def test_a_tiny_temperature_is_no_way_out() -> None:
    """There every log-odds is within rounding, but a token that is not nearly the best one still falls."""
    logits = torch.tensor([[3.0, 2.9, 0.0]]).repeat(3, 1)
    e = facts(logits, torch.arange(3), Sampling(1e-6), np.array([0.5, 0.5, 0.5]))
    assert list(e.unlikely > 0) == [False, True, True]


def surprise_of(p: np.ndarray, n: int, rng: np.random.Generator, truth: np.ndarray | None = None) -> Surprise:
    logits = torch.from_numpy(np.log(p)).repeat(n, 1)
    ids = torch.from_numpy(rng.choice(len(p), size=n, p=p if truth is None else truth))
    total = Surprise()
    total.add(facts(logits, ids, Sampling(1.0)), 0.0)
    return total


def test_evidence_accuses_no_honest_run_where_z_does() -> None:
    """A model that is nearly certain: one rare token is many deviations, and the normal law says nothing."""
    rng = np.random.default_rng(1)
    p = np.array([0.999, 0.0009, 0.0001])
    runs = [surprise_of(p, 30, rng) for _ in range(1000)]
    assert sum(abs(r.z) > level.Z for r in runs) > 10
    assert all(r.evidence < level.RARE for r in runs)


def test_evidence_has_power() -> None:
    rng = np.random.default_rng(2)
    p = np.array([0.6, 0.2, 0.1, 0.1])
    for truth in (p**2.5 / (p**2.5).sum(), p**0.4 / (p**0.4).sum()):
        found = surprise_of(p, 600, rng, truth)
        assert abs(found.z) > level.Z and found.evidence > level.RARE
