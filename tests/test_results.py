"""results.json refuses what is not it, and its figures equal those worked out by hand."""

from __future__ import annotations

import copy
import json
import math
import random

import pytest
from pydantic import ValidationError

from seedbench import stats
from seedbench.core import SeedbenchError, stream
from seedbench.results import Result, Results
from seedbench.summarize import EpisodeSummary, summarize

TASKS = [("t1", "put"), ("t2", "put"), ("t3", "heat"), ("t4", "put")]
HOW = {"trials": 1, "max_steps": 50, "partial": False, "pinned": True}
EPISODES = [
    EpisodeSummary("t1", "put", 0, 1.0, True, "terminated", 10, 0, 100, 20),
    EpisodeSummary("t2", "put", 0, 0.25, False, "truncated", 50, 5, 500, 80),
    EpisodeSummary("t3", "heat", 0, 1.0, True, "terminated", 40, 1, 300, 50),
    EpisodeSummary("t4", "put", 0, 0.0, False, "error", 0, 0, None, None),
]


def one(tasks=TASKS, episodes=EPISODES, **how) -> Result:
    return summarize("alfworld", "seen", "mini", tasks, episodes, **(HOW | how))


def whole(**changes) -> Results:
    base = {"agent": {"spec": "random"}, "protocol": {}, "software": {}, "chain_head": "a" * 64, "selection": None}
    return Results(**(base | {"results": [one()]} | changes))


def test_figures_by_hand():
    r = one()
    assert (r.tasks, r.attempted, r.errors) == (4, 4, 1)
    assert r.success.mean == 0.5 and r.success.ci == stats.wilson(2, 4) and r.success.method == "wilson"
    assert r.success.n == r.score.n == 4
    assert r.score.mean == 0.5625
    assert r.score.ci == stats.cluster_bootstrap([[1.0], [0.25], [1.0], [0.0]], stream("alfworld", "seen", "score"))
    assert r.by_kind["put"].mean == pytest.approx(1 / 3) and r.by_kind["put"].ci == stats.wilson(1, 3)
    assert r.by_kind["heat"].n == 1 and list(r.by_kind) == ["heat", "put"]
    assert r.macro == pytest.approx((1 / 3 + 1) / 2)
    assert (r.steps.mean, r.steps.median) == (25.0, 25.0)
    assert r.invalid_rate == 6 / 100
    assert (r.tokens.prompt, r.tokens.completion) == (900, 150)
    assert r.success_at_30 == 0.25  # t3 won too late, t1 in time
    assert r.metrics == {"score_by_kind": {"heat": 1.0, "put": pytest.approx((1 + 0.25 + 0) / 3)}}
    assert one(episodes=[e._replace(score=float(e.success)) for e in EPISODES]).metrics == {}
    assert r.pass_k is None and r.pinned and not r.partial
    assert one(max_steps=30).success_at_30 is None


def test_trials_are_clustered():
    won = {"t1": (1, 1, 1), "t2": (1, 0, 0), "t3": (0, 1, 1), "t4": (0, 0, 0)}
    episodes = [
        EpisodeSummary(t, k, i, float(w), bool(w), "terminated", 4, 0) for t, k in TASKS for i, w in enumerate(won[t])
    ]
    r = one(episodes=episodes, trials=3)
    assert (r.tasks, r.attempted, r.success.n, r.success.method) == (4, 12, 4, "cluster bootstrap")
    assert r.success.mean == 0.5 and r.tokens is None
    seed = stream("alfworld", "seen", "success")
    assert r.success.ci == stats.cluster_bootstrap(list(won.values()), seed)
    assert [r.pass_k[k].pass_hat for k in "123"] == pytest.approx([1 / 2, (1 + 0 + 1 / 3 + 0) / 4, 1 / 4])
    assert [r.pass_k[k].pass_at for k in "123"] == pytest.approx([1 / 2, (1 + 2 / 3 + 1 + 0) / 4, 3 / 4])
    perfect = one(episodes=[e._replace(success=True) for e in episodes], trials=3)
    assert perfect.success.ci == stats.wilson(4, 4), "four tasks won each time do not prove 100 %"


def test_order_changes_nothing():
    rng = random.Random(3)
    tasks = [(f"t{i:03}", rng.choice("abc")) for i in range(60)]
    episodes = [
        EpisodeSummary(t, k, i, rng.random(), rng.random() < 0.5, "terminated", rng.randrange(1, 50), 1, 7, 3)
        for t, k in tasks
        for i in range(2)
    ]
    first = one(tasks, episodes, trials=2)
    for _ in range(3):
        rng.shuffle(episodes)
        rng.shuffle(tasks)
        assert one(tasks, episodes, trials=2).model_dump_json() == first.model_dump_json()


def test_micro_mean_is_over_examples_not_over_batches():
    """protocol.md A.2-1: 125 last rows fell into batches of 124 and 1, and the mean of batch means was published."""
    won = [True] * 24 + [False] * 100 + [True]
    tasks = [(f"b{i:03}", "bamboogle") for i in range(125)]
    episodes = [EpisodeSummary(t, k, 0, float(w), w, "terminated", 1, 0) for (t, k), w in zip(tasks, won, strict=True)]
    by_batches = (sum(won[:124]) / 124 + won[124]) / 2
    assert round(100 * by_batches, 1) == 59.7, "the published figure"
    r = one(tasks, episodes)
    assert r.success.mean == r.macro == 25 / 125 and r.score.mean == pytest.approx(0.2)


def test_an_error_is_a_failure_whatever_it_claims():
    r = one(episodes=[e._replace(ended="error") for e in EPISODES])
    assert (r.errors, r.success.mean, r.score.mean, r.success_at_30) == (4, 0.0, 0.0, 0.0)
    nothing = one(episodes=[e._replace(steps=0, invalid=0) for e in EPISODES])
    assert nothing.invalid_rate is None


@pytest.mark.parametrize(
    ("episodes", "why"),
    [
        (EPISODES[:-1], "'t4' has 0 episodes and needs exactly 1"),
        ([*EPISODES, EPISODES[1]], "'t2' has 2 episodes"),
        ([*EPISODES, EPISODES[0]._replace(task="t9")], "'t9'"),
        ([*EPISODES[:-1], EPISODES[-1]._replace(kind="heat")], "kind 'heat'"),
    ],
)
def test_every_task_exactly_once(episodes, why):
    with pytest.raises(ValueError, match=why):
        one(episodes=episodes)


def test_a_trial_played_twice_is_not_two_trials():
    with pytest.raises(ValueError, match="one a trial"):
        one(episodes=EPISODES * 2, trials=2)


@pytest.mark.parametrize("bad", [{"tasks": []}, {"tasks": TASKS + TASKS[:1]}, {"trials": 0}])
def test_nonsense_is_refused(bad):
    with pytest.raises(ValueError, match="each once"):
        one(**bad)


@pytest.mark.parametrize("score", [1.5, -0.1, math.nan, math.inf])
def test_scores_are_shares(score):
    with pytest.raises(ValueError, match="'t2' is impossible"):
        one(episodes=[EPISODES[0], EPISODES[1]._replace(score=score), *EPISODES[2:]])
    with pytest.raises(ValueError, match="'t2' is impossible"):
        one(episodes=[EPISODES[0], EPISODES[1]._replace(invalid=51), *EPISODES[2:]])


def test_round_trip_keeps_every_bit():
    text = whole().dumps()
    assert Results.loads(text) == whole() and Results.loads(text).dumps() == text
    tree = json.loads(text)
    assert list(tree) == ["schema", "agent", "protocol", "software", "chain_head", "selection", "results"]
    keys = "env split data tasks attempted errors success score macro by_kind steps invalid_rate tokens success_at_30"
    assert list(tree["results"][0]) == [*keys.split(), "pass_k", "metrics", "partial", "pinned"]
    assert set(tree["results"][0]["success"]) == {"mean", "ci", "n", "method"}
    assert set(tree["results"][0]["by_kind"]["put"]) == {"n", "mean", "ci"}


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(tree):
        for key in path:
            tree = tree[key]
        tree[last] = value

    return change


ROW = ("results", 0)


@pytest.mark.parametrize(
    "change",
    [
        _set("extra", 1),
        _set(*ROW, "extra", 1),
        _set(*ROW, "success", "extra", 1),
        _set(*ROW, "by_kind", "put", "method", "wilson"),
        _set(*ROW, "success", "mean", math.nan),
        _set(*ROW, "success", "mean", 1.0001),
        _set(*ROW, "success", "mean", "0.5"),
        _set(*ROW, "success", "mean", True),
        _set(*ROW, "success", "ci", [0.9, 0.1]),
        _set(*ROW, "success", "ci", [0.1]),
        _set(*ROW, "macro", -0.1),
        _set(*ROW, "steps", "mean", math.inf),
        _set(*ROW, "attempted", 4.5),
        _set(*ROW, "errors", 5),
        _set(*ROW, "tasks", 3),
        _set(*ROW, "partial", "no"),
        _set(*ROW, "metrics", {"em": [math.nan]}),
        _set("agent", {"x": {"y": math.inf}}),
        _set("agent", []),
        _set("schema", "other/1"),
        _set("chain_head", "not a hash"),
        lambda tree: tree["results"].append(copy.deepcopy(tree["results"][0])),
        lambda tree: tree.pop("selection"),
        lambda tree: tree["results"][0].pop("pinned"),
    ],
)
def test_what_is_not_results_json_is_refused(change):
    tree = json.loads(whole().dumps())
    change(tree)
    with pytest.raises(SeedbenchError, match=r"results\.json is not valid"):
        Results.loads(json.dumps(tree))


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "seedbench.results/1", "schema": "x"}', b"\xff", "{"])
def test_broken_files_are_named(text):
    with pytest.raises(SeedbenchError, match=r"results\.json is not valid"):
        Results.loads(text)


def test_results_cannot_be_edited_in_place():
    with pytest.raises(ValidationError):
        whole().results[0].tasks = 9
