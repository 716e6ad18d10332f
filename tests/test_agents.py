"""The agents that are no model: replay, human, module:factory; and a thousand episodes at once."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from rich.console import Console

from seedbench import cli, record
from seedbench.agents import SPECS, load_agent, public_spec
from seedbench.agents.human import Human, Left
from seedbench.agents.replay import Replay
from seedbench.agents.scripted import Expert, Random
from seedbench.core import Agent, Info, Reply, SeedbenchError, Task, Trajectory, UnsupportedError, View
from seedbench.evaluate import evaluate, resume
from seedbench.exam import Config
from seedbench.rollout import Episode, play
from tests import fake_endpoint as fake
from tests.conftest import need
from tests.toy import Counter, task

ENV = "seedbench/Toy-v0"


class Toy(Counter):
    """The counter as an environment that `eval --env toy` and `play toy` find."""

    def __init__(self, data: str = "mini", max_steps: int = 6):
        super().__init__()
        self.data, self.max_steps = data, max_steps

    def tasks(self, split: str) -> tuple[Task, ...]:
        return tuple(replace(t, env=ENV) for t in super().tasks(split))


@pytest.fixture(autouse=True)
def toy_env() -> Iterator[None]:
    gym.register(ENV, entry_point=Toy, order_enforce=False)
    yield
    del gym.registry[ENV]


@pytest.fixture
def quiet() -> Console:
    return Console(file=io.StringIO())


def chained(out: Path) -> bytes:
    return (out / "trajectories.jsonl.gz").read_bytes()


def test_a_thousand_environments_are_stepped_as_one_batch() -> None:
    sizes: list[int] = []

    class Watching(Expert):
        def act(self, views: Sequence[View], envs: Any = None) -> list[Reply | Exception]:
            sizes.append(len(views))
            return super().act(views, envs)

    todo = [Episode(task(f"to-{1 + n % 5}"), trial=n) for n in range(1000)]
    got = list(play(Counter, todo, Watching(), slots=1000))
    assert len({t.trial for t in got}) == 1000 and all(t.success for t in got)
    assert sizes == [1000, 800, 600, 400, 200]


# ---- replay


@pytest.fixture
def recorded(tmp_path: Path, quiet: Console) -> Path:
    return evaluate(Config("random", env="toy", trials=3, seed=4), tmp_path / "was", quiet)


def test_replay_gives_the_bytes_of_the_run_it_replays(recorded: Path, tmp_path: Path, quiet: Console) -> None:
    for batch in (1, 64):
        config = Config(f"replay:{recorded}", env="toy", trials=3, seed=4, batch=batch)
        out = evaluate(config, tmp_path / str(batch), quiet)
        assert chained(out) == chained(recorded)
        said = json.loads((out / "results.json").read_text())["agent"]
        head = json.loads((recorded / "results.json").read_text())["chain_head"]
        assert said == {"spec": "replay:was", "kind": "replay", "chain_head": head, "needs_env": True}
        assert str(tmp_path) not in (out / "results.json").read_text()


def test_replay_says_what_the_recording_lacks(recorded: Path) -> None:
    agent = Replay(f"replay:{recorded}")
    here = replace(task("to-5"), env=ENV)
    lacking = [Episode(here, trial=9), Episode(replace(here, split="train")), Episode(task("to-5")), Episode(here)]
    got = [*play(Toy, lacking, agent, slots=1)]
    assert [t.ended for t in got] == ["error"] * 3 + ["truncated"]
    assert "was holds no trial 9 of to-5" in got[0].error and "(seedbench/Toy-v0, train)" in got[1].error
    longer = list(play(lambda: Toy(max_steps=20), [Episode(here)], agent))
    assert "holds 6 turns of to-5, trial 0, and no more" in longer[0].error and len(longer[0].steps) == 6


def test_replay_of_an_episode_that_broke_off_names_why(tmp_path: Path) -> None:
    (broken,) = play(Counter, [Episode(task("fault-step"))], Expert())
    record.write_chained(tmp_path / "trajectories.jsonl.gz", [record.record(broken)])
    (again,) = play(Counter, [Episode(replace(broken.task, id="fault-step"))], Replay(f"replay:{tmp_path}"))
    assert again.error == broken.error == "ValueError: broken at step"
    (other,) = play(lambda: _Mended(), [Episode(broken.task)], Replay(f"replay:{tmp_path}"))
    assert "ended there with ValueError: broken at step" in other.error


class _Mended(Counter):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:  # type: ignore[override]
        self.task = "to-9"
        return super().step(action)


def test_replay_of_nothing_or_of_damage_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match="is no folder"):
        load_agent(f"replay:{tmp_path}/none")
    with pytest.raises(SeedbenchError, match="missing: is the run finished"):
        load_agent(f"replay:{tmp_path}")
    record.write_gzip_lines(tmp_path / "trajectories.jsonl.gz", [{"task": "to-1"}])
    with pytest.raises(SeedbenchError, match="line 1, is no record"):
        load_agent(f"replay:{tmp_path}")
    got = play(Counter, [Episode(task("to-2"), trial=n) for n in range(9)], Random())
    record.write_chained(tmp_path / "trajectories.jsonl.gz", map(record.record, got))
    assert load_agent(f"replay:{tmp_path}").describe()["chain_head"]
    (tmp_path / "trajectories.jsonl.gz").write_bytes(chained(tmp_path)[:-9])
    with pytest.raises(SeedbenchError, match="cannot be read to its end"):
        load_agent(f"replay:{tmp_path}")


# ---- module:factory


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("mine", "pkg", "pkg.mod"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return tmp_path


GOOD = """
from seedbench.core import Agent, Reply
class Up(Agent):
    def act(self, views, envs=None):
        return [Reply("<action>up</action>") for _ in views]
class Sampled(Up):
    def __init__(self, *, sampling, other=3):
        self.got = sampling
def function():
    return lambda views: ["<action>up</action>"] * len(views)
class Space:
    make = Up
"""


@pytest.mark.parametrize("what", ["Up", "Sampled", "function", "Space.make"])
def test_an_agent_of_the_users_own_is_played(here: Path, what: str, quiet: Console) -> None:
    (here / "mine.py").write_text(GOOD)
    out = evaluate(Config(f"mine:{what}", env="toy", split="seen"), here / "out", quiet)
    found = json.loads((out / "results.json").read_text())
    assert found["agent"]["spec"] == f"mine:{what}" and found["results"][0]["success"]["mean"] == 1
    assert ("source_sha256" in found["agent"]) == (what == "function")


def test_a_package_in_the_current_directory(here: Path) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "mod.py").write_text(GOOD)
    assert load_agent("pkg.mod:Up", batch=3, device="cpu").describe() == {"spec": "pkg.mod:Up", "kind": "up"}


@pytest.mark.parametrize(
    "text, named",
    [
        ("make = 3", "mine:make is int"),
        ("make = lambda: 3", "made <class 'int'>"),
        ("make = lambda: int", "made <class 'int'>"),
        ("def make(x): pass", "cannot be called without arguments (missing a required argument: 'x')"),
        ("def make(): return 1 / 0", "raised ZeroDivisionError: division by zero"),
        ("other = 1", "mine has no make"),
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def make(:", "SyntaxError"),
        (GOOD + "class make(Up):\n    def describe(self): return {'spec': 'x'}", "describe() lacks kind"),
        (GOOD + "class make(Up):\n    def describe(self): return {'spec': self}", "describe() is not JSON"),
    ],
)
def test_a_wrong_module_or_factory_is_one_sentence_with_the_cause(here: Path, text: str, named: str) -> None:
    (here / "mine.py").write_text(text)
    with pytest.raises(SeedbenchError) as caught:
        load_agent("mine:make")
    assert named in str(caught.value) and "mine:make" in str(caught.value)


def test_no_such_module(here: Path) -> None:
    with pytest.raises(SeedbenchError, match="No module named 'mine'"):
        load_agent("mine:make")


@pytest.mark.parametrize(
    "returned, named",
    [("'up'", "gave str, not a list of 1 texts"), ("[]", "0 replies to 1 views"), ("[3]", "gave int in the place"),
     ("iter([])", "not a list"), ("[ValueError('own')]", "ValueError: own")],
)  # fmt: skip
def test_wrong_returns_of_a_function_are_the_episodes_errors(here: Path, returned: str, named: str) -> None:
    (here / "mine.py").write_text(f"make = lambda: lambda views: {returned}")
    (t,) = play(Counter, [Episode(task("to-2"))], load_agent("mine:make"))
    assert t.ended == "error" and named in t.error


@pytest.mark.parametrize("spec", ["nope:", ":make", "tpu:some/path", "a b:c", "", "http://x"])
def test_specs_that_name_nothing_list_what_there_is(here: Path, spec: str) -> None:
    with pytest.raises(SeedbenchError) as caught:
        load_agent(spec)
    assert SPECS in str(caught.value)


def test_a_path_with_a_colon_is_a_folder(here: Path) -> None:
    (here / "mine:make").mkdir()
    with pytest.raises(SeedbenchError) as caught:
        load_agent("mine:make")
    assert "import" not in str(caught.value)  # it is read as a model folder, an empty one


# ---- human


def person(*lines: str, width: int = 80) -> tuple[Human, io.StringIO]:
    """A person who types these lines and then hangs up."""
    typed, out = iter(lines), io.StringIO()

    def ask(prompt: str) -> str:
        out.write(prompt)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    return Human(Console(file=out, width=width, markup=False, emoji=False, highlight=False), ask), out


def actions(t: Trajectory) -> list[str]:
    return [s.action for s in t.steps]


def test_numbers_and_texts_win() -> None:
    human, out = person("2", "up", "up")
    (t,) = play(Counter, [Episode(task("to-3"))], human, slots=1)
    assert t.success and actions(t) == ["up", "up", "up"] and t.steps[0].view.observation == "count: 0"
    said = out.getvalue()
    assert "Task: reach 3" in said and "1 down" in said and "2 up" in said and "Won after 3 steps." in said


def test_undo_leaves_no_trace_in_the_record() -> None:
    human, out = person("u", "1", "down", "u", "u", "up", "h", "up")
    (t,) = play(Counter, [Episode(task("to-2"))], human, slots=1)
    assert t.success and actions(t) == ["up", "up"]
    assert "no step to take back" in out.getvalue() and "1 > up\ncount: 1" in out.getvalue()
    (direct,) = play(Counter, [Episode(task("to-2"))], Expert())
    assert record.record(t) == record.record(direct)


def test_a_loss_is_said_and_may_be_taken_back() -> None:
    human, out = person(*["down"] * 6, "u", "h", "?", "up", "up", "")
    (t,) = play(Counter, [Episode(task("to-5"))], human, slots=1)
    assert (t.ended, t.success, actions(t)) == ("truncated", False, ["down"] * 5 + ["up"])
    assert out.getvalue().count("Not won: the step limit is reached (score 0) after 6 steps.") == 2
    human, _ = person(*["down"] * 6)  # hanging up after the end accepts it
    (t,) = play(Counter, [Episode(task("to-5"))], human, slots=1)
    assert t.ended == "truncated"


def test_what_cannot_be_read_costs_nothing_and_what_is_not_accepted_costs_a_step() -> None:
    human, out = person("", "3", "0", "99999999999", "two <action>s</action>", "jump", "=2", "up")
    (t,) = play(Counter, [Episode(task("to-1"))], human, slots=1)
    assert actions(t) == ["jump", "2", "up"]
    said = out.getvalue()
    assert "from 1 to 2" in said and "cannot be read as an action: more than one" in said
    assert "Not accepted: no such action" in said


def test_whoever_leaves_is_told_how_it_ended() -> None:
    for lines in (("up", "q"), ("up",)):
        human, _ = person(*lines)
        with pytest.raises(Left, match="Left at step 1, not won"):
            list(play(Counter, [Episode(task("to-3"))], human, slots=1))


class Hostile(Counter):
    def reset(self, **options: Any) -> tuple[str, Info]:  # type: ignore[override]
        _, info = super().reset(**options)
        info["admissible"] = ["[red]up[/red]", "\x1b]0;title\x07", *(f"open cabinet number {i}" for i in range(200))]
        return "[bold]not bold[/bold] :smile: \x1b[2J\u202egnihton\r " + "word " * 60, info


def test_hostile_text_is_shown_as_it_is_in_80_columns() -> None:
    human, out = person("q")
    with pytest.raises(Left):
        list(play(Hostile, [Episode(task("to-3"))], human, slots=1))
    said = out.getvalue()
    assert "[bold]not bold[/bold] :smile: \\u001b[2J\\u202egnihton\\u000d" in said and "[red]up[/red]" in said
    assert not {"\x1b", "\u202e", "\r", "\x07"} & set(said)
    assert max(map(len, said.splitlines())) <= 80
    assert len(said.splitlines()) < 120  # 202 actions in columns


class Uncopied(Counter):
    def clone(self) -> Counter:
        raise UnsupportedError("no copies")


def test_without_copies_there_is_no_undo() -> None:
    human, out = person("u", "up", "u", "up")
    (t,) = play(Uncopied, [Episode(task("to-2"))], human, slots=1)
    assert t.success and actions(t) == ["up", "up"] and out.getvalue().count("no step to take back") == 2


class Drifting(Counter):
    """Each copy starts with a different count: what is seen on it is not what comes."""

    def clone(self) -> Counter:
        other = super().clone()
        other.count += 1
        return other


def test_a_copy_that_went_another_way_is_noticed() -> None:
    human, out = person()
    human._ask = lambda prompt: "" if prompt.startswith("Enter") else "up"
    list(play(Drifting, [Episode(task("to-5"))], human, slots=1))
    assert "went another way than its copy" in out.getvalue()


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_play_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    piped(monkeypatch, "down\nu\nup\n2\n")
    cli.main(["play", "toy", "--task", "to-2", "--max-steps", "4"])
    said = capsys.readouterr().out
    assert "Won after 2 steps." in said and "of 4]" in said and "> up" in said
    for text in ("", "up\nq\n"):
        piped(monkeypatch, text)
        cli.main(["play", "toy", "--task", "o-2"])
        assert "not won; this episode is not kept." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "args, named",
    [
        (["toys"], "is not an environment"),
        (["all"], "play one"),
        (["toy", "--task", "to-"], "fits 5 of the 5 tasks in seen: give one id, such as to-1"),
        (["toy", "--task", "nothing"], "fits 0 of the 5"),
        (["toy", "--split", "seen,dev"], "--split"),
        (["toy", "--max-steps", "0"], "--max-steps"),
    ],
)
def test_play_says_what_is_wrong(args: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["play", *args])
    assert stop.value.code == 2 and named in capsys.readouterr().err


def test_eval_of_a_person_goes_one_by_one_and_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r"
    args = ["eval", "--agent", "human", "--env", "toy", "--split", "seen", "--limit", "2", "--out", str(out)]
    piped(monkeypatch, "up\nup\nq\n")
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 130 and "--resume" in capsys.readouterr().err
    piped(monkeypatch, "down\nu\nup\nup\n")
    cli.main(["eval", "--resume", str(out)])
    found = json.loads((out / "results.json").read_text())
    assert found["agent"] == {"spec": "human", "kind": "human", "needs_env": True}
    assert [len(line["steps"]) for line in record.read_lines(out / "trajectories.jsonl.gz")] == [1, 2]


# ---- all of them


def test_every_agent_that_sees_more_than_a_view_is_marked() -> None:
    assert [a.needs_env for a in (Expert(), Random(), Human(), load_agent("null"))] == [True, True, True, False]


def test_an_endpoint_in_eval_leaves_no_password_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: Console
) -> None:
    try:
        import openai  # noqa: F401
    except ImportError:
        need(None, "the openai package is missing: pip install -e '.[api]'")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-secret")
    monkeypatch.chdir(tmp_path)
    bad = fake.error(401, "no")
    up = fake.says("<action>up</action>")
    with fake.FakeEndpoint(up, bad, up) as server:
        spec = "openai:m@" + server.url.replace("//", "//me:pass-word@")
        assert public_spec(spec) == f"openai:m@{server.url}"
        with pytest.raises(SeedbenchError, match="episodes were not played"):
            evaluate(Config(spec, env="toy", split="seen", batch=1), None, quiet)
        (out,) = (tmp_path / "runs").iterdir()
        resume(out, quiet)
    texts = [out.name, *(p.read_text() for p in out.iterdir() if p.suffix in (".json", ".html"))]
    assert not any(secret in text for text in texts for secret in ("pass-word", "me:pass", "bWU6", "sk-secret"))
    (result,) = json.loads((out / "results.json").read_text())["results"]
    assert result["success"]["mean"] == 1 and result["tokens"] == {"prompt": 15 * 11, "completion": 15 * 7}


def test_the_defaults_of_an_agent() -> None:
    assert not Agent.interactive and not Agent.needs_env and Human.interactive
