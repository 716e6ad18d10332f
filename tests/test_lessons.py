"""Lessons by rule on episodes of mini: always one, always the same, true, and nothing given away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from seedbench.agents import load_agent
from seedbench.core import Agent, Lesson, Reply, TextEnv, Trajectory, View
from seedbench.envs.searchqa.scoring import normalise
from seedbench.exam import Config, plan
from seedbench.rollout import Episode, play

ENVS = ("alfworld", "webshop", "searchqa", "deepsearch")
EACH = 24


class Script(Agent):
    """Says its texts one after another, the last one again and again."""

    def __init__(self, *texts: str):
        self.texts = texts

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply]:
        return [Reply(self.texts[min(len(view.history), len(self.texts) - 1)]) for view in views]


@cache
def episodes(env: str, agent: str, split: str) -> tuple[TextEnv, tuple[Trajectory, ...]]:
    exam = plan(Config(agent, env=env, split=split))[0]
    tasks = exam.tasks[split]
    chosen = (Episode(task) for task in tasks[:: max(1, len(tasks) // EACH)])
    return exam.make(), tuple(play(exam.make, chosen, load_agent(agent), prompt=exam.prompt))


@pytest.mark.parametrize("split", ["train", "unseen"])
@pytest.mark.parametrize("agent", ["expert", "random"])
@pytest.mark.parametrize("env", ENVS)
def test_every_episode_teaches_something_short_and_gives_nothing_away(env: str, agent: str, split: str) -> None:
    there, played = episodes(env, agent, split)
    for t in played:
        lesson = there.lesson(t)
        assert lesson is not None and lesson.summary and lesson.skill
        assert lesson == there.clone().lesson(t)
        assert len(lesson.skill.split()) <= 50 and not re.search(r"\d", " ".join(lesson))
        told = f" {normalise(' '.join(lesson))} "
        assert not [secret for secret in there.secrets(t.task) if f" {normalise(secret)} " in told]
        names = {word for word in t.steps[0].view.goal.split()[1:] if word[:1].isupper()}
        assert not names.intersection(re.findall(r"\w+", lesson.skill)), "a name of the question"


@pytest.mark.parametrize("env", ENVS)
def test_a_lesson_leaves_the_state_and_crashed_episodes_alone(env: str) -> None:
    there, played = episodes(env, "expert", "train")
    there.reset(seed=3, options={"task": played[0].task.id})
    before = there.step(played[0].steps[0].action)
    there.reset(seed=3, options={"task": played[0].task.id})
    there.lesson(played[1])
    assert there.step(played[0].steps[0].action) == before
    assert there.lesson(replace(played[0], steps=())) is None


def test_success_in_the_shop_is_told_in_the_shops_words() -> None:
    there, played = episodes("webshop", "expert", "train")
    t = next(t for t in played if t.task.id == "mini/train/beauty-0000")
    assert t.steps[0].view.goal == (
        "find me fragrant lip balm that shines with color: navy, and scent: cedar, and price lower than 20 dollars"
    )
    assert there.lesson(t) == Lesson(
        "The right lip balm was bought.",
        "Search fragrant glossy lip balm and the color and scent. Shines means glossy. Features say fragrant. "
        "Check the price. Click color and scent, then buy.",
    )


SEARCH = "search[fragrant glossy lip balm navy cedar]"


@pytest.mark.parametrize("actions, warning", [
    ((SEARCH, "click[kata]", "click[buy now]"), "Do not buy before you click color and scent."),
    ((SEARCH, "click[kata]", "click[navy]", "click[buy now]"), "Do not buy before you click scent."),
    ((SEARCH, "click[kata]", "click[red]", "click[cedar]", "click[buy now]"),
     "Do not buy before you click color."),
    ((SEARCH, "click[kata]", "click[navy]"), "Buy before the turns run out."),
    ((SEARCH,), "Open a product of the list."),
    (("click[search]",), "Begin with a search."),
    (("search[fragrant lip balm]", "click[dale]", "click[cedar]", "click[navy]", "click[buy now]"),
     "Buy only what is glossy."),
    (("search[matte glossy lip balm]", "click[tedor]",), "Open a product of the list."),
    (("search[desk lamp]", "click[jela]", "click[buy now]"), "Buy nothing but lip balm."),
])  # fmt: skip
def test_the_first_mistake_in_the_shop(actions: tuple[str, ...], warning: str) -> None:
    exam = plan(Config("x", env="webshop", split="train"))[0]
    agent = Script(*(exam.prompt.reply(a) for a in actions))
    (t,) = play(exam.make, [Episode(exam.tasks["train"][0])], agent, prompt=exam.prompt)
    lesson = exam.make().lesson(t)
    assert lesson is not None and not t.success
    assert lesson.skill.startswith(f"{warning} Search fragrant glossy lip balm")


BRIDGE = "Search the name with film directed. Then search the person found with born. Then answer."


@pytest.mark.parametrize("texts, skill", [
    (("<search>Jibusir at Dawn film directed</search>", "<search>Zujun Kogul born</search>", "<answer>Buvove</answer>"),
     BRIDGE),
    (("<answer>Buvo</answer>",), f"Do not answer before a search. {BRIDGE}"),
    (("<search>Jibusir at Dawn film directed</search>", "<answer>Zujun Kogul</answer>"),
     f"Do not stop after the first passage. {BRIDGE}"),
    (("<search>Jibusir at Dawn film directed</search>", "<search>Zujun Kogul born</search>", "<answer>Dawn</answer>"),
     f"Answer with what the passage says. {BRIDGE}"),
    (("<search>Jibusir at Dawn film directed</search>", "<search>Zujun Kogul born</search>"),
     f"Answer once the passages are found. {BRIDGE}"),
    (("<search>mayor of a town</search>",), f"Do not search the same words again. {BRIDGE}"),
    (("<search>mayor of a town</search>", "<answer>Dawn</answer>"), f"Do not search without the name. {BRIDGE}"),
    (("well",), f"Write one search or answer a turn. {BRIDGE}"),
])  # fmt: skip
def test_success_and_the_first_mistake_of_a_search(texts: tuple[str, ...], skill: str) -> None:
    exam = plan(Config("x", env="searchqa", split="train"))[0]
    task = next(task for task in exam.tasks["train"] if task.id == "searchqa-mini/hotpotqa/f7d82543")
    (t,) = play(exam.make, [Episode(task)], Script(*texts), prompt=exam.prompt)
    lesson = exam.make().lesson(t)
    assert lesson is not None and t.success == (skill == BRIDGE)
    assert lesson.skill == skill
