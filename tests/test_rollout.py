"""play(): every episode once, whatever breaks, and nothing depends on who shares the batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.agents.scripted import Expert, Null, Random
from seedbench.core import Agent, Info, InfrastructureError, Reply, TextEnv, Tokens, Trajectory, View
from seedbench.record import canonical, record
from seedbench.rollout import Episode, play
from tests.toy import Counter, task

TASKS = [task(f"to-{n}") for n in range(1, 6)]


def episodes(trials: int = 1, seed: int = 0) -> list[Episode]:
    return [Episode(t, seed, trial) for t in TASKS for trial in range(trials)]


def played(agent: Agent, todo: list[Episode], slots: int = 64) -> dict[tuple[str, int], str]:
    return {(t.task.id, t.trial): canonical(record(t)) for t in play(Counter, todo, agent, slots=slots)}


def test_expert_wins_each_once() -> None:
    got = list(play(Counter, episodes(), Expert()))
    assert sorted(t.task.id for t in got) == [f"to-{n}" for n in range(1, 6)]
    assert all(t.success and t.score == 1 and t.ended == "terminated" for t in got)
    assert {t.task.id: len(t.steps) for t in got} == {f"to-{n}": n for n in range(1, 6)}


def test_null_is_truncated_not_won_and_each_reply_invalid() -> None:
    for t in play(Counter, episodes(), Null()):
        assert (t.ended, t.success, t.score, len(t.steps)) == ("truncated", False, 0.0, Counter.max_steps)
        assert all(not s.format_valid and s.reason and not s.action_valid and s.action == "" for s in t.steps)


@given(slots=st.integers(1, 40), order=st.randoms(use_true_random=False))
def test_batch_and_order_change_nothing(slots: int, order: object) -> None:
    todo = episodes(trials=3, seed=7)
    alone = played(Random(), todo, slots=1)
    order.shuffle(todo)  # type: ignore[attr-defined]
    assert played(Random(), todo, slots) == alone


def test_trials_and_seeds_have_their_own_streams() -> None:
    runs = [played(Random(), episodes(trials=4, seed=s)) for s in (0, 1)]
    texts = [
        canonical([s["action"] for s in __import__("json").loads(line)["steps"]]) for r in runs for line in r.values()
    ]
    assert len(set(texts)) > len(texts) // 2


def test_slots_are_kept_busy_and_environments_reused() -> None:
    sizes: list[int] = []

    class Watching(Expert):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            sizes.append(len(views))
            return super().act(views, envs)

    Counter.made = 0
    assert len(list(play(Counter, episodes(trials=8), Watching(), slots=4))) == 40
    assert Counter.made == 4
    assert sum(sizes) == 8 * (1 + 2 + 3 + 4 + 5)
    assert sizes.count(4) >= len(sizes) - 5  # only the tail may run short


def test_a_raising_environment_is_a_failure_in_the_denominator() -> None:
    todo = [Episode(task("fault-reset")), Episode(task("fault-step")), *episodes()]
    got = {t.task.id: t for t in play(Counter, todo, Expert())}
    assert len(got) == 7
    assert (got["fault-reset"].ended, got["fault-reset"].error) == ("error", "RuntimeError: broken at reset")
    broken = got["fault-step"]
    assert (broken.ended, broken.success, broken.score, len(broken.steps)) == ("error", False, 0.0, 2)
    assert all(got[t.id].success for t in TASKS)


def test_a_raising_agent_takes_only_its_own_episode_along() -> None:
    class Touchy(Expert):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            if any(v.goal == "reach 3" for v in views):
                raise ZeroDivisionError("three")
            return super().act(views, envs)

    got = {t.task.id: t for t in play(Counter, episodes(), Touchy())}
    assert got["to-3"].error == "ZeroDivisionError: three" and got["to-3"].ended == "error"
    assert [t.success for k, t in sorted(got.items()) if k != "to-3"] == [True] * 4


def test_an_exception_in_place_of_a_reply_is_that_episodes_alone() -> None:
    class Partly(Expert):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            replies = super().act(views, envs)
            return [ValueError("nan") if v.goal == "reach 2" else r for v, r in zip(views, replies, strict=True)]

    got = {t.task.id: t for t in play(Counter, episodes(), Partly())}
    assert [k for k, t in sorted(got.items()) if t.ended == "error"] == ["to-2"]


def test_infrastructure_faults_leave_the_episode_unplayed() -> None:
    left: list[str] = []
    todo = [Episode(task("gone")), *episodes()]
    got = list(play(Counter, todo, Expert(), on_unplayed=lambda e, error: left.append(e.task.id)))
    assert left == ["gone"] and len(got) == 5
    with pytest.raises(InfrastructureError, match="gone"):
        list(play(Counter, todo, Expert()))


def test_the_wrong_number_of_replies_is_an_error_not_a_mix_up() -> None:
    class Short(Null):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            return []

    assert all("0 replies" in t.error for t in play(Counter, episodes(), Short()))


class Says(Agent):
    def __init__(self, text: str):
        self.text = text

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        return [Reply(self.text) for _ in views]


@given(st.text(alphabet=st.characters(codec=None), max_size=60))
def test_any_text_is_played_and_can_be_written(text: str) -> None:
    (t,) = play(Counter, [Episode(TASKS[4])], Says(text))
    canonical(record(t)).encode("utf-8")
    assert t.ended == "truncated"


def test_views_hold_the_past_and_streams_differ_by_turn() -> None:
    (t,) = play(Counter, [Episode(TASKS[4], hint="count up")], Expert())
    assert isinstance(t, Trajectory)
    assert t.steps[2].view.history == (("count: 0", "up"), ("count: 1", "up"))
    assert len({s.view.stream for s in t.steps}) == 5
    assert all("Lesson:\ncount up" in s.view.messages[1]["content"] for s in t.steps)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


BAD_REPLIES = [
    "a text",
    None,
    Reply(None),  # type: ignore[arg-type]
    Reply("x", finish_reason=3),  # type: ignore[arg-type]
    Reply("x", usage={"prompt_tokens": -5}),
    Reply("x", usage={"prompt_tokens": "x"}),  # type: ignore[dict-item]
    Reply("x", usage=7),  # type: ignore[arg-type]
    Reply("x", tokens=[1]),  # type: ignore[arg-type]
    Reply("x", tokens=Tokens((1,), (2,), ())),
    Reply("x", tokens=Tokens((1,), (2,), (float("nan"),))),
    Unprintable(),
    ValueError("half \ud800"),
    SystemExit(3),
]


@pytest.mark.parametrize("bad", BAD_REPLIES, ids=[repr(type(b).__name__) + str(i) for i, b in enumerate(BAD_REPLIES)])
def test_a_bad_reply_costs_its_own_episode_and_can_be_written(bad: object) -> None:
    class Bad(Expert):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            replies = super().act(views, envs)
            return [bad if v.goal == "reach 2" else r for v, r in zip(views, replies, strict=True)]  # type: ignore[misc]

    got = {t.task.id: t for t in play(Counter, episodes(), Bad())}
    assert [k for k, t in sorted(got.items()) if t.ended == "error"] == ["to-2"] and got["to-2"].error
    for t in got.values():
        canonical(record(t)).encode("utf-8")


def test_sys_exit_in_an_agent_ends_an_episode_and_not_the_run() -> None:
    class Leaves(Expert):
        def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
            if any(v.goal == "reach 3" for v in views):
                raise SystemExit(0)
            return super().act(views, envs)

    got = {t.task.id: t for t in play(Counter, episodes(), Leaves())}
    assert len(got) == 5 and got["to-3"].error == "SystemExit: 0"


def test_text_that_no_file_can_hold_is_made_writable() -> None:
    class Odd(Counter):
        def step(self, action: str) -> tuple[str, float, bool, bool, Info]:  # type: ignore[override]
            observation, *rest, info = super().step(action)
            return f"{observation} \ud800", *rest, {**info, "goal": "\udfff", "admissible": ["up\ud800"]}  # type: ignore[return-value,typeddict-item]

    (t,) = play(Odd, [Episode(TASKS[4])], Expert())
    canonical(record(t)).encode("utf-8")
    assert t.success and t.steps[1].view.observation == "count: 1 ?" and t.steps[1].view.goal == "?"
