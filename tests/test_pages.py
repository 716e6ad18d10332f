"""Report, board and comparison in a real browser: filters, keyboard, narrow screens, and text that tries to be code."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench import record, view
from seedbench.leaderboard import boardfile, compare_view, show
from seedbench.leaderboard.board import tables
from seedbench.leaderboard.compare import compare
from seedbench.results import load
from tests import boards
from tests.conftest import need

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1100,900",
)  # fmt: skip
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<svg onload=document.title='owned'></pre></details>\u202egnp.exe <a href=javascript:alert(1)>x</a> "
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """report.html, board.html and compare.html of small runs in which every text is hostile."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {name: boards.scripted(folder, name, env="alfworld", limit=6) for name in ("null", "random", "expert")}
    number = iter(range(10**6))
    results, lines = boards.replayed(runs["expert"], lambda line: next(number) % 3 > 0, spec=HOSTILE)
    for i, line in enumerate(lines):
        for step in line["steps"]:
            step.update(observation=step["observation"] + HOSTILE, text=HOSTILE, action=HOSTILE, format_valid=i != 2)
        line["steps"][0]["observation"] = f"needle{i} " + "y" * 2**20 * (i == 0)
    bad = boards.write_run(folder / "bad", results, lines)
    view.write_report(bad, load(bad), record.read_lines(bad / "trajectories.jsonl.gz"))
    compare_view.write_html(compare(runs["expert"], bad), folder / "compare.html")
    entries = [boards.entry(n, load(r), list(record.read_lines(r / "trajectories.jsonl.gz"))) for n, r in runs.items()]
    rows = [r.model_copy(update={"partial": False}) for r in results.results]
    about = {"url": "https://example.org/model", "base_model": HOSTILE[:299], "seeds": [1]}
    whole = results.model_copy(update={"results": rows, "selection": "dev"})
    entries.append(boards.entry("m", whole, lines, name=HOSTILE[:100], **about))
    show.write_html(tables(boardfile.load(boards.board(folder / "b.json", entries))), folder / "board.html")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need(shutil.which("chromium") and shutil.which("chromedriver"), "no chromium (apt-get install chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    yield driver
    driver.quit()


def shown(browser: Any, css: str = "[data-item]") -> int:
    return len([e for e in browser.find_elements("css selector", css) if e.is_displayed()])


def until(browser: Any, count: int) -> None:
    """Wait until so many items are shown: text is looked for a moment after the last key, on any machine."""
    end = time.monotonic() + 40
    while (now := shown(browser)) != count and time.monotonic() < end:
        time.sleep(0.05)
    assert now == count


def choose(browser: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("css selector", f"form.filter select[name={name}]")).select_by_visible_text(value)


def safe(browser: Any, page: Path) -> None:
    """Nothing that a model wrote became an element, ran or was asked for over a network."""
    browser.get(page.as_uri())
    time.sleep(0.2)
    assert browser.title.endswith(" · seedbench"), "no script has named the page anew"
    assert browser.execute_script("return document.querySelectorAll('img, svg[onload], iframe, object').length") == 0
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    hrefs = browser.execute_script("return [...document.querySelectorAll('a')].map(a => a.href)")
    assert set(hrefs) <= {"https://example.org/model"}
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def fits(browser: Any, page: Path) -> None:
    """No sideways scrolling at the width of a phone, everything unfolded."""
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    width = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width <= 390


@pytest.mark.parametrize("name", ["bad/report.html", "board.html", "compare.html"])
def test_hostile_text_does_nothing_and_phones_can_read(name: str, pages: Path, browser: Any) -> None:
    safe(browser, pages / name)
    fits(browser, pages / name)


def test_a_script_of_a_transcript_would_not_run_even_unescaped(pages: Path, browser: Any, tmp_path: Path) -> None:
    """The page's policy names its own script by hash: escaping is not the only wall."""
    page = (pages / "bad" / "report.html").read_text(encoding="utf-8")
    (tmp_path / "holed.html").write_text(page.replace("<h1>", "<script>document.title='owned'</script><h1>"))
    browser.get((tmp_path / "holed.html").as_uri())
    assert browser.title != "owned" and browser.execute_script("return document.scripts.length") == 2


def test_report_is_filtered_and_read_by_keyboard(pages: Path, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get((pages / "bad" / "report.html").as_uri())
    until(browser, 12)
    assert browser.find_element("css selector", "form.filter output").text == "12 of 12 episodes"
    choose(browser, "outcome", "lost")
    until(browser, 4)
    choose(browser, "split", "unseen")
    until(browser, 2)
    assert shown(browser, "[data-group]") == 1, "a group without items goes with them"
    choose(browser, "outcome", "all")
    until(browser, 6)
    search = browser.find_element("css selector", "form.filter input")
    search.send_keys("NEEDLE7")
    until(browser, 1)
    assert browser.find_element("css selector", "form.filter output").text == "1 of 12 episodes"
    item = next(e for e in browser.find_elements("css selector", "[data-item]") if e.is_displayed())
    search.send_keys(Keys.TAB, Keys.NULL)
    assert browser.switch_to.active_element.tag_name == "summary"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert item.get_attribute("open") and "needle7" in item.text and "saw" in item.text and "did" in item.text
    search.send_keys(Keys.ENTER)
    assert browser.current_url.endswith("report.html"), "the form goes nowhere"


def test_board_rows_unfold_and_filter(pages: Path, browser: Any) -> None:
    browser.get((pages / "board.html").as_uri())
    until(browser, 4)
    choose(browser, "ranked", "ranked")
    until(browser, 1)
    row = next(e for e in browser.find_elements("css selector", "tbody[data-item]") if e.is_displayed())
    assert "66.7" in row.text and "single seed" in row.text and "dev" in row.text and "1" in row.text.split()
    row.find_element("css selector", "summary").click()
    assert "pick_and_place_simple" in row.text and "https://example.org/model" in row.text
    choose(browser, "ranked", "not ranked")
    until(browser, 3)
    assert {"floor", "ceiling"} <= {t.text for t in browser.find_elements("css selector", ".tag")}


def test_comparison_shows_two_transcripts_side_by_side(pages: Path, browser: Any) -> None:
    browser.get((pages / "compare.html").as_uri())
    until(browser, 4)
    choose(browser, "outcome", "B")
    until(browser, 0)
    choose(browser, "outcome", "A")
    until(browser, 4)
    browser.find_element("css selector", "[data-item] summary").click()
    left, right = browser.find_elements("css selector", "[data-item][open] .pair > div")
    assert abs(left.location["y"] - right.location["y"]) < 2 and left.location["x"] < right.location["x"]
    assert left.text.startswith("A · ") and "won" in left.text and "lost" in right.text and "needle" in right.text


def test_both_colour_schemes_keep_their_contrast(pages: Path, browser: Any) -> None:
    """Text against its page, WCAG's ratio: at least 4.5 for soft text too, in light and dark."""
    for scheme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        browser.get((pages / "board.html").as_uri())
        names = ("--page", "--card", "--code", "--ink", "--soft", "--won", "--lost", "--mean")
        read = (
            "const s = getComputedStyle(document.documentElement); return arguments[0].map(n => s.getPropertyValue(n))"
        )
        colour = dict(zip(names, map(_luminance, browser.execute_script(read, names)), strict=True))
        for back in names[:3]:
            for text in names[3:]:
                light, dark = sorted((colour[back], colour[text]), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, back, text)
        assert (colour["--page"] > 0.5) == (scheme == "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def _luminance(colour: str) -> float:
    digits = colour.strip().lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
