"""The terminal table fits, and the report is one safe, self-contained, reproducible page."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from seedbench.results import Results
from seedbench.summarize import EpisodeSummary, summarize
from seedbench.view import (
    EPISODES_SHOWN,
    PAGE_CHARACTERS,
    _pick,
    clip,
    percent,
    print_table,
    short,
    visible,
    write_report,
)

HOSTILE = (
    "<script>alert(1)</script> \"'onload=x> ]]> </pre></details> {{ 7*7 }} &amp; \u202egnp.exe \x1b[31m \x00 \ud800 "
)
ENVS = ("seedbench/ALFWorld-v0", "seedbench/WebShop-v0", "seedbench/SearchQA-v0", "seedbench/DeepSearch-v0")


def a_result(env=ENVS[0], split="seen", n=200, partial=False, pinned=True, kind="pick", trials=1):
    tasks = [(f"t{i:03}", f"{kind}{i % 3}") for i in range(n)]
    episodes = [EpisodeSummary(t, k, j, 1.0, True, "terminated", 9, 0) for t, k in tasks for j in range(trials)]
    how = {"trials": trials, "max_steps": 50, "partial": partial, "pinned": pinned}
    return summarize(env, split, "mini", tasks, episodes, **how)


def some_results(rows, **agent):
    agent = {"spec": "random"} | agent
    return Results(agent=agent, protocol={}, software={}, chain_head="0" * 64, selection=None, results=rows)


def a_line(i=0, success=False, env=ENVS[0], split="seen", text="<action>look</action>", **changes):
    step = {"observation": "a room", "text": text, "action": "look", "format_valid": True, "reward": 0.0}
    base = {"task": f"t{i}", "env": env, "split": split, "seed": 1, "trial": 0, "steps": [step | {"prompt_sha": "x"}]}
    return base | {"score": 0.0, "success": success, "ended": "truncated", "error": ""} | changes


def printed(results) -> list[str]:
    out = io.StringIO()
    print_table([results] if isinstance(results, Results) else results, Console(file=out, width=80))
    return out.getvalue().splitlines()


def page(tmp_path, results, lines) -> str:
    return write_report(tmp_path, results, lines).read_text(encoding="utf-8")


def test_table_fits_80_columns_at_its_widest():
    rows = [a_result(env, split, 200, partial=True, pinned=False) for env in ENVS for split in ("seen", "unseen")]
    lines = printed(some_results(rows))
    assert all(len(line) <= 80 for line in lines) and "…" not in "".join(lines)
    row = next(line for line in lines if line.startswith("deepsearch") and "unseen*~" in line).split()
    assert row == ["deepsearch", "unseen*~", "200", "100.0", "[98.1,", "100.0]", "100.0", "100.0", "9.0", "0.0", "0"]
    assert len(lines) == 2 + 8 + 2 and "partial" in lines[-2] and "unpinned" in lines[-1]


def test_table_marks_only_what_is_marked():
    lines = printed(some_results([a_result(n=3)]))
    assert len(lines) == 3 and "*" not in "".join(lines) and "~" not in "".join(lines)


def test_table_prints_markup_as_text():
    assert "[red]x\\u202e" in "\n".join(printed(some_results([a_result(split="[red]x\u202e", n=3)])))


class Page(HTMLParser):
    """Every tag and attribute of a page, and a check that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "rect", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_hostile_text_stays_text(tmp_path):
    step = {"observation": HOSTILE, "text": HOSTILE, "action": HOSTILE, "format_valid": False, "reward": 0.0}
    line = a_line(task=HOSTILE, error=HOSTILE, ended="error", steps=[step], env=HOSTILE, split=HOSTILE)
    rows = [a_result(env=HOSTILE.replace("\ud800", ""), split='"><img src=x>', n=6, kind="<b>\u2066")]
    text = page(tmp_path, some_results(rows, spec="<i>" + "\u202e", notes="</pre><script>"), [line])
    parsed = Page(text)
    assert not parsed.open
    assert not {"img", "i", "iframe", "link", "object"} & set(parsed.tags) and parsed.tags.count("script") == 1
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "href", "style")]
    script = text[text.index("<script>") + 8 : text.index("</script>")]
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{sha}'" in text, "the browser runs our script and no other"
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", text)
    assert "\\u202egnp.exe" in text and "\\u001b[31m" in text and "\\ud800" in text and "{{ 7*7 }}" in text
    assert html.escape("<script>alert(1)</script>") in text and "]]&gt;" in text


def test_page_asks_for_nothing(tmp_path):
    text = page(tmp_path, some_results([a_result(n=6)]), [a_line()])
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert "default-src 'none'" in text and text.startswith("<!doctype html>")
    assert "prefers-color-scheme" in text and 'name="viewport"' in text


def test_same_run_same_bytes(tmp_path):
    results, lines = some_results([a_result(n=6)]), [a_line(i, i % 2 == 0) for i in range(6)]
    assert page(tmp_path, results, lines) == page(tmp_path, results, iter(lines))


def test_figures_and_bars(tmp_path):
    text = page(tmp_path, some_results([a_result(n=4, partial=True, pinned=False, trials=2)]), [])
    assert 'aria-label="success 100.0 %, 95 % interval 51.0–100.0"' in text
    assert 'x="51.01" y="2" width="48.99"' in text
    assert text.count('class="kind"') == 3 and "4 × 2" in text and "pass^2 100.0 %" in text
    assert ">partial</span>" in text and ">unpinned</span>" in text and "0 of 0 episodes" in text


def test_left_out_episodes_are_counted(tmp_path):
    lines = [a_line(i, success=i % 2 == 0) for i in range(2250)]
    text = page(tmp_path, some_results([a_result(n=3)]), iter(lines))
    assert f"{EPISODES_SHOWN:,} of 2,250 episodes" in text and "1,250 were left out" in text
    assert text.count('class="lost"') == EPISODES_SHOWN and 'class="won"' not in text
    few = page(tmp_path, some_results([a_result(n=3)]), lines[:10])
    assert few.index('class="lost"') < few.index('class="won"') and "left out of this page" not in few


def test_a_page_of_huge_observations_still_opens(tmp_path):
    """1 MB a step, 300 episodes: what is kept and what is written stay bounded."""
    steps = [a_line()["steps"][0] | {"observation": "x" * 2**20, "text": " … 7 characters left out".rjust(2**20)}]
    lines = (a_line(i, steps=steps * 5) for i in range(300))
    text = page(tmp_path, some_results([a_result(n=3)]), lines)
    assert len(text) < 1.3 * PAGE_CHARACTERS and "of 300 episodes" in text
    assert text.count(" … 1044576 characters left out") == 2 * text.count('<span class="soft">· trial') * 5


def test_splits_share_the_page():
    lines = [a_line(i, False, env, split) for env in ENVS for split in ("seen", "unseen") for i in range(300)]
    lines += [a_line(0, True, split="dev"), a_line(1, False, split="train")]
    groups, total = _pick(iter(lines))
    assert total == 2402 and sum(map(len, groups.values())) == EPISODES_SHOWN
    assert len(groups["alfworld train"]) == 1 and "alfworld dev" not in groups  # failures come first everywhere
    assert {len(groups[f"{short(e)} {s}"]) for e in ENVS for s in ("seen", "unseen")} <= {124, 125}


@pytest.mark.parametrize(
    ("env", "name"),
    [("seedbench/ALFWorld-v0", "alfworld"), ("alfworld", "alfworld"), ("x/SearchQA-v12", "searchqa"), ("", "")],
)
def test_short_names(env, name):
    assert short(env) == name


def test_words():
    assert (percent(1), percent(0.8766), percent(None)) == ("100.0", "87.7", "-")
    plain = "Ünï ★ › 漢字 é\n\tok — “x” 𝔸"
    assert visible(plain) == plain
    assert visible("a\u200bb\rc\u2028\u00ad") == "a\\u200bb\\u000dc\\u2028\\u00ad"
    assert clip("x" * 4000) == "x" * 4000 and clip("x" * 4010).endswith(" … 10 characters left out")
