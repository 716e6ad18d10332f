"""Signal and direction of gradients on cases with a known answer; both measurements end to end; the A/A flag; plans."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbench.core import Anchor, SeedbenchError, Task
from seedbench.train.args import Args
from seedbench.train.hints import SeedArgs, SspoArgs
from tests.tiny import one_sentence, one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
gram = pytest.importorskip("seedbench.baselines.gram")
anchor_gap = pytest.importorskip("seedbench.baselines.anchor_gap")
gradients = pytest.importorskip("seedbench.baselines.gradients")
hint_gap = pytest.importorskip("seedbench.baselines.hint_gap")
signal = pytest.importorskip("seedbench.baselines.signal")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def sample(rng: np.random.Generator, n: int, share: float, cosine: float, size: int = 400) -> list[np.ndarray]:
    """(2, size) gradients of two terms: means at `cosine`, a noise that both share and which is most of each."""
    along, across = np.eye(2, size)
    means = np.stack([along, cosine * along + np.sqrt(1 - cosine**2) * across])
    noise = rng.normal(size=(n, 1, size)) * np.sqrt((1 / share - 1) / size)
    return list((means + noise).astype(np.float32))


def test_by_hand() -> None:
    """Three batches of one number: 1, 2, 6. Pairs 2, 6, 12; squares 1, 4, 36."""
    dots = gram.gram([np.array([[x]], np.float32) for x in (1, 2, 6)])
    assert gram.apart(dots[0, :, 0], np.ones((1, 3))).tolist() == [pytest.approx(20 / 3)]
    assert gram.apart(dots[0, :, 0], np.array([[2.0, 1.0, 0.0]])).tolist() == [pytest.approx(2)]  # no pair of copies
    found = gram.report(dots, ["pg"], 0, [])["pg"]
    assert found["signal"].value == pytest.approx((20 / 3) / (41 / 3))
    assert found["norm"].value == pytest.approx(np.sqrt(41 / 3))


def test_known_signal_and_cosine_are_found_without_bias() -> None:
    """Noise that two terms share within a batch is no alignment: of the same batches, the plain cosine would be .95."""
    rng = np.random.default_rng(3)
    shares, cosines, inside = [], [], 0
    for _ in range(40):
        found = gram.report(gram.gram(sample(rng, 24, 0.1, 0.2)), ["pg", "own"], 0, [0.1])
        shares.append(found["own"]["signal"].value)
        cosines.append(found["own"]["cosine:pg"].value)
        inside += found["own"]["signal"].low <= 0.1 <= found["own"]["signal"].high
        assert found["own"]["size@0.1"].value == pytest.approx(0.1, rel=0.1)
        assert found["own"]["mean_size@0.1"].value == pytest.approx(0.1, rel=0.7)
    assert np.mean(shares) == pytest.approx(0.1, abs=0.01)
    assert np.mean(cosines) == pytest.approx(0.2, abs=0.06)
    assert inside >= 34  # of 40 intervals of 95 %


def test_no_signal_is_said_to_be_none() -> None:
    rng = np.random.default_rng(5)
    noise = list(rng.normal(size=(32, 2, 300)).astype(np.float32))
    found = gram.report(gram.gram(noise), ["pg", "own"], 0, [])["own"]
    assert found["signal"].low < 0 < found["signal"].high and abs(found["signal"].value) < 0.01
    assert found["cosine:pg"].low is None  # more draws than a few have no answer
    zero = gram.report(gram.gram([np.zeros((1, 4), np.float32)] * 4), ["pg"], 0, [])["pg"]["signal"]
    assert zero.value is None and str(zero) == "not determined"


def test_dot_products_survive_their_file() -> None:
    dots = gram.gram(sample(np.random.default_rng(0), 5, 0.5, 0.5, 10_000))
    again = gram.unpacked(json.loads(json.dumps(gram.packed(dots))), 2)
    assert again.shape == dots.shape == (2, 5, 2, 5) and np.allclose(again, dots, rtol=1e-7)
    assert np.array_equal(again, again.transpose(2, 3, 0, 1))


def test_differences_of_terms_follow_from_the_dot_products() -> None:
    held = sample(np.random.default_rng(1), 4, 0.5, 0.5)
    whole = gram.extended(gram.gram(held), ["pg", "sspo"], {"added": ("sspo", "pg")})
    assert np.allclose(whole, gram.gram([np.stack([a, b, b - a]) for a, b in held]), atol=1e-5)
    assert np.array_equal(gram.extended(whole, ["a", "b", "c"], {}), whole)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


SMALL: dict[str, Any] = {"tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2, "analysis_tokens": 8}


def test_gradients_are_those_of_the_training_loop(folder: Path, tmp_path: Path) -> None:
    """Of the very episodes of an update, |lambda OPD| / |PG| is what --share-every logs, and |PG| its grad_norm."""
    from seedbench.baselines import grpo, seed
    from seedbench.train.loop import train

    seen: dict[str, np.ndarray] = {}

    def watched(run: Any, trajectories: Any) -> Any:
        player = SimpleNamespace(policy=run.policy, exam=run.exam)
        found, figures = gradients.terms(player, run.args, trajectories, [0, 0, 1, 1], 0)
        assert figures["coverage:rules"] == figures["coverage:fixed"] == 1 and figures["coverage:own"] == 0
        assert figures["gap:fixed"] == 0 != figures["gap:rules"]
        seen.update(zip(gradients.TERMS, found, strict=True))
        return seed.hindsight(run, trajectories)

    args = SeedArgs(model=str(folder), out=str(tmp_path / "run"), updates=1, skills="rules", lambda_opd=0.1,
                    share_every=1, invalid_penalty=0.5, **SMALL)  # fmt: skip
    train(args, advantages=grpo.advantages, objective=seed.objective, hindsight=watched)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    pg, opd = seen["pg"].astype(float), 0.1 * seen["rules"].astype(float)
    assert np.linalg.norm(pg) > 0
    assert line["part_share"] == pytest.approx(np.linalg.norm(opd) / np.linalg.norm(pg), rel=1e-4)
    assert line["grad_norm"] == pytest.approx(np.linalg.norm(pg + opd), rel=1e-4)
    # No reply can be read, so every advantage is -.5: GRPO then pushes down what plain self-imitation pushes up.
    assert seen["pg"] == pytest.approx(-seen["fixed"], abs=1e-5)
    assert not seen["own"].any() and not seen["shuffled"].any()  # random weights write no lesson


@pytest.mark.parametrize("way", [{}, {"granularity": "token"}, {"direct": True}], ids=["sspo", "token", "direct"])
def test_gradients_of_sspo_are_those_of_the_training_loop(folder: Path, tmp_path: Path, way: dict[str, Any]) -> None:
    """Of the very episodes of an update, the norm of the term that the run is of is its grad_norm."""
    from seedbench.baselines import gradients_sspo, grpo, sspo
    from seedbench.policy.hf import HFPolicy
    from seedbench.train.loop import train

    seen: dict[str, np.ndarray] = {}
    figures: dict[str, float] = {}

    def watched(run: Any, trajectories: Any) -> Any:
        plain = dataclasses.replace(run.args, granularity="step", direct=False)

        def measured(teacher: Any = None, **more: Any) -> dict[str, np.ndarray]:
            args, player = dataclasses.replace(plain, **more), SimpleNamespace(policy=run.policy, exam=run.exam)
            found, told = gradients_sspo.terms(player, args, trajectories, [0, 0, 1, 1], 0, teacher)
            figures.update(told)
            return dict(zip(gradients_sspo.TERMS, found, strict=True))

        if not way:
            other = measured(HFPolicy.load(tiny_folder(tmp_path / "other", seed=1, max_position_embeddings=4096)))
            none = measured(privileged="none")
            assert figures["coverage:sspo"] == 1 and none["sspo"] == pytest.approx(none["pg"], abs=1e-6)
        seen.update(measured())
        if not way:
            assert np.array_equal(other["pg"], seen["pg"]) and not np.allclose(other["sspo"], seen["sspo"], atol=1e-5)
        return sspo.hindsight(None, run, trajectories)

    args = SspoArgs(model=str(folder), out=str(tmp_path / "run"), env="searchqa", updates=1, invalid_penalty=0.5, **way,
                    **{k: v for k, v in SMALL.items() if k != "analysis_tokens"})  # fmt: skip
    train(args, advantages=grpo.advantages, objective=sspo.objective, hindsight=watched)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    term = next(iter(way), "sspo").replace("granularity", "token")
    assert line["grad_norm"] == pytest.approx(np.linalg.norm(seen[term].astype(float)), rel=1e-4) != 0
    if not way:
        assert line["weight_mean"] == pytest.approx(figures["weight_mean:sspo"])
        assert line["weight_mean"] != pytest.approx(figures["weight_mean:shuffled"], rel=1e-3)
        scale = np.vdot(seen["level"], seen["pg"]) / np.vdot(seen["pg"], seen["pg"])  # every episode failed
        assert seen["level"] == pytest.approx(scale * seen["pg"], abs=1e-6) and 0 < scale < 1.2
        assert not np.allclose(seen["sspo"], seen["level"], atol=1e-5)


def test_evidence_is_dealt_to_other_tasks() -> None:
    from seedbench.baselines.gradients_sspo import dealt

    own = {task: [Anchor(task, task, task)] for task in "abcde"}
    given = dealt(own, list("aabbccdd"), 3)
    assert sorted(given) == list("abcd") == sorted(some[0].title for some in given.values())
    assert all(some[0].title != task for task, some in given.items())
    with pytest.raises(SeedbenchError) as error:
        dealt(own, ["a", "a"], 0)
    one_sentence(error, "--tasks is 1")


def test_options_of_another_page_are_refused(folder: Path, tmp_path: Path) -> None:
    for more, word in (({"teacher": "x"}, "--teacher"), ({"page": "sspo", "analysis_tokens": 8}, "--analysis-tokens")):
        with pytest.raises(SeedbenchError) as error:
            signal.SignalOptions("tiny", tmp_path / "x", **more)
        one_sentence(error, word, "leave it out")


def test_signal_of_sspo_end_to_end(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = {k: v for k, v in SMALL.items() if k != "analysis_tokens"} | {"page": "sspo", "env": "searchqa"}
    some |= {"work": tmp_path / "work", "batches": 3}
    with pytest.raises(SeedbenchError) as error:
        signal.main(signal.SignalOptions(str(folder), tmp_path / "out.json", teacher="tiny", **some))
    one_sentence(error, "another tokenizer")
    signal.main(signal.SignalOptions(str(folder), tmp_path / "out.json", teacher=str(folder), **some))
    said, one = capsys.readouterr().out, json.loads((tmp_path / "out.json").read_text())["checkpoints"][0]
    assert all(f"\n{term} " in said for term in ("sspo", "direct", "added", "added_shuffled"))
    assert one["teacher"] == one["revision"] and "cosine with added" in said and "weight_capped: sspo" in said
    again = signal.recomputed(one, 0)["added"]
    assert again["norm"]["value"] == pytest.approx(one["figures"]["added"]["norm"]["value"], rel=1e-3) != 0


def run_signal(folder: Path, work: Path, out: Path, batches: int = 3) -> dict[str, Any]:
    signal.main(signal.SignalOptions(str(folder), out, work=work, batches=batches, **SMALL))
    return dict(json.loads(out.read_text()))


def test_signal_end_to_end_goes_on_and_can_be_recomputed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_signal(folder, tmp_path / "work", tmp_path / "one.json")
    said = capsys.readouterr().out
    assert "signal share" in said and all(f"\n{term} " in said for term in gradients.TERMS)
    one = first["checkpoints"][0]
    assert signal.recomputed(one, first["settings"]["seed"])["rules"]["signal"]["value"] == pytest.approx(
        one["figures"]["rules"]["signal"]["value"], rel=1e-4
    )
    assert one["figures"]["fixed"]["cosine:pg"]["value"] == pytest.approx(-1, abs=1e-3)  # as in the test above
    assert len(one["batches"]) == 3 and len({b["gap:rules"] for b in one["batches"]}) == 3
    files = sorted((tmp_path / "work").rglob("*.npz"))
    files[1].unlink()
    asked: list[int] = []
    for wrong in ("2/2", "1", "a/b"):
        with pytest.raises(SeedbenchError) as error:
            signal.main(signal.SignalOptions(str(folder), tmp_path / "no", part=wrong))
        one_sentence(error, "K/N")
    real = signal.measure
    monkeypatch.setattr(signal, "measure", lambda p, a, n, t: asked.append(n) or real(p, a, n, t))
    for part in ("0/2", "1/2"):
        options = signal.SignalOptions(
            str(folder), tmp_path / "no", work=tmp_path / "work", batches=3, part=part, **SMALL
        )
        signal.main(options)
        assert asked == ([] if part == "0/2" else [1]) and not (tmp_path / "no").exists()
    assert run_signal(folder, tmp_path / "work", tmp_path / "two.json") == first and asked == [1]
    files[2].write_bytes(b"PK")
    with pytest.raises(SeedbenchError) as error:
        run_signal(folder, tmp_path / "work", tmp_path / "three.json")
    one_sentence(error, "0002.npz", "delete it")


def test_hint_gap_end_to_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every arm's actor sees its lesson, and only that; a policy whose analyses cannot be read has no gap at all."""
    from seedbench.baselines.player import Player

    shown: list[list[str]] = []
    real = Player.play

    def watched(self: Any, episodes: Any) -> Any:
        played = real(self, episodes)
        assert all(step.view.hint == e.hint for e, t in zip(episodes, played, strict=True) for step in t.steps)
        shown.append([e.hint for e in episodes])
        return played

    monkeypatch.setattr(Player, "play", watched)
    out = tmp_path / "gap.json"
    options = hint_gap.GapOptions(str(folder), out, tasks=6, max_new_tokens=8, analysis_tokens=8, max_steps=2)
    hint_gap.main(options)
    result = json.loads(out.read_text())
    assert shown[0] == shown[1] == [""] * 6 and shown[2] == result["skills"]["rule"] and shown[3] == []
    assert sorted(shown[4]) == sorted(shown[2]) and shown[4] != shown[2]
    assert shown[5] == [] and len(shown[6]) == 6  # nobody won, so there is no donor; the bank speaks to all
    assert result["parse_rate"] == 0 and result["equal_to_rule"] is None
    assert result["won"]["own"] == result["won"]["plain"] and len(result["won"]["rule"]) == 6
    assert "is below the bar" in capsys.readouterr().out


def test_hint_gap_figures_by_hand() -> None:
    t, f = True, False
    outcomes = {arm: [t, t, f, f] for arm in ("source", "plain", "own", "other", "new", "static")}
    outcomes["rule"] = [t, t, t, f]
    outcomes["new"] = [f, t, t, t]
    skills = {arm: ["s"] * 4 for arm in hint_gap.ARMS} | {"new": ["s", "", "s", "s"], "own": ["s", "", "", "s"]}
    rows = {(r["arm"], r["tasks"]): r for r in hint_gap.summary(outcomes, skills)}
    rule = rows["rule", "all"]
    assert (rule["plain"], rule["success"], rule["difference"], rule["p"]) == (0.5, 0.75, 0.25, 1.0)
    assert rule["difference_interval"][0] < 0.25 < rule["difference_interval"][1]
    assert rows["rule", "after a failure"]["difference"] == 0.5 and rows["rule", "after a success"]["difference"] == 0
    assert ("new", "all") not in rows and rows["new", "with a donor"]["n"] == 3
    assert rows["new", "with a donor"]["difference"] == pytest.approx(1 / 3)
    assert rows["own", "with a lesson"]["n"] == 2 and rows["own", "all"]["n"] == 4


def test_anchor_gap_end_to_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each arm's actor sees what its name says, and the file holds neither evidence nor answers."""
    from seedbench.baselines.player import Player

    shown: list[list[str]] = []
    real = Player.play
    monkeypatch.setattr(Player, "play", lambda self, some: shown.append([e.hint for e in some]) or real(self, some))
    out = tmp_path / "gap.json"
    anchor_gap.main(anchor_gap.AnchorOptions(str(folder), out, tasks=3, max_new_tokens=8, max_steps=2))
    anchors, answer, teacher, other = shown[2:]
    assert shown[:2] == [[""] * 3] * 2 and all(text.startswith("Evidence:\n- ") for text in anchors)
    assert sorted(other) == sorted(anchors) and all(a != b for a, b in zip(anchors, other, strict=True))
    assert all(b.startswith(f"{a}\nThe right answer is: ") for a, b in zip(anchors, answer, strict=True))
    assert all("earlier attempt" in text and a.split("\nDo not")[0] in text
               for a, text in zip(anchors, teacher, strict=True))  # fmt: skip
    kept = out.read_text()
    assert not any(a.splitlines()[1][2:] in kept or b.rpartition("is: ")[2] in kept
                   for a, b in zip(anchors, answer, strict=True))  # fmt: skip
    assert "is below the bar" in capsys.readouterr().out
    assert json.loads(kept)["counts"]["plain"]["steps"] == [2.0] * 3


def test_anchor_gap_figures_by_hand() -> None:
    arms = ("plain", *anchor_gap.ARMS)
    won = {arm: [True, False, False, False] for arm in arms} | {"anchors": [True, True, True, False]}
    counted = {arm: {"steps": [4.0, 6.0, 8.0, 8.0]} for arm in arms} | {"anchors": {"steps": [2.0, 5.0, 5.0, 8.0]}}
    shown = {arm: [True] * 4 for arm in anchor_gap.ARMS} | {"teacher": [False, True, True, True]}
    rows = {(r["arm"], r["tasks"]): r for r in anchor_gap.summary(won, counted, shown)}
    row = rows["anchors", "all"]
    assert (row["plain"], row["success"], row["difference"]) == (0.25, 0.75, 0.5)
    steps = row["counts"]["steps"]
    assert (steps["plain"], steps["shown"], steps["difference"]) == (6.5, 5.0, -1.5)
    assert steps["interval"] == pytest.approx([-1.5 - 2.0543, -1.5 + 2.0543], abs=1e-3)  # t(.975, 3) sqrt(5/3) / 2
    assert rows["teacher", "shown"]["n"] == 3 and ("anchors", "shown") not in rows


def test_donors_are_other_won_tasks_of_kind_and_family() -> None:
    where = [("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")]
    tasks = [Task(str(i), "e", "train", kind, {"family": family}) for i, (kind, family) in enumerate(where)]
    assert hint_gap.donors(tasks, [True, False, True, True, False], ["s"] * 5, 0) == [None, 0, None, None, 0]
    drawn = {hint_gap.donors(tasks, [True] * 5, ["s", "", "s", "s", "s"], seed)[1] for seed in range(20)}
    assert drawn == {0, 4}


def test_deal_seed_changes_the_deal_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    from seedbench.baselines import grpo

    made = {}
    for name, deal in (("one", 0), ("again", 1), ("same", 0)):
        args = Args(model=str(folder), out=str(tmp_path / name), updates=1, mini_batches=2, deal_seed=deal, lr=1e-2,
                    tasks=2, group=2, max_new_tokens=8, max_steps=2)  # fmt: skip
        out = grpo.run(args)
        made[name] = (out / "model.safetensors").read_bytes(), json.loads((out / "metrics.jsonl").read_text())
    assert made["one"][0] == made["same"][0] != made["again"][0]
    assert made["one"][1]["prompt_digest"] == made["again"][1]["prompt_digest"]
    assert made["one"][1]["tokens"] == made["again"][1]["tokens"]
    with pytest.raises(SeedbenchError) as error:
        Args(deal_seed=1)
    one_sentence(error, "--mini-batches")


def test_the_committed_signal_follows_from_its_dot_products() -> None:
    file = Path(signal.__file__).parent / "results" / "seed-signal.json"
    result = json.loads(file.read_text(encoding="utf-8"))
    first = result["checkpoints"][0]
    again = signal.recomputed(first, result["settings"]["seed"])
    for term, name in (("own", "signal"), ("own", "cosine:pg"), ("fixed", "signal"), ("own", "size@0.1")):
        assert again[term][name]["value"] == pytest.approx(first["figures"][term][name]["value"], rel=1e-4)
    assert again["own"]["signal"]["value"] == pytest.approx(0.142, abs=5e-4)
