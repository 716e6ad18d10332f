"""The shop for people: its pages by request, and the way of a shopper in a real browser."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench import remote
from seedbench.agents.scripted import Random
from seedbench.core import SeedbenchError, Task, stream
from seedbench.envs.webshop import site
from seedbench.envs.webshop.catalogue import MemoryCatalogue
from seedbench.envs.webshop.data import Dataset
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.goals import Goal, frozen_prices
from seedbench.envs.webshop.products import preprocess
from seedbench.rollout import Episode, play
from seedbench.serve.app import create_app
from tests import webshop_shop
from tests.conftest import need
from tests.servers import threaded

WEBSHOP = "seedbench/WebShop-v0"
NASTY = '<script>alert("x")</script>\' & {{ 7 * 7 }} %s ../..'


class OddShop(Dataset):
    """The odd shirt of tests/webshop_shop.py, with one task that names markup."""

    nouns = None

    def __init__(self) -> None:
        self.catalogue = webshop_shop.catalogue()

    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in ("seen", "dev"):
            raise SeedbenchError(f"no {split} here")
        return (Task("odd", WEBSHOP, split, "fashion"),)

    def goal(self, task_id: str) -> Goal:
        return webshop_shop.goal(instruction_text=f"a red shirt {NASTY}")

    def digest(self) -> str:
        return "odd"


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A test client of a shop with the odd shirt: quotes, slashes, brackets and button names among its options."""
    shop = OddShop()
    monkeypatch.setattr("seedbench.envs.webshop.env.open_dataset", lambda data, goals: shop)
    return shop_app("mini").test_client()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return webshop_shop.write_folder(tmp_path_factory.mktemp("shop"))


def shop_app(data: str | Path) -> Any:
    make = partial(WebShopEnv, data=data, tagger="lexicon")
    return create_app(WEBSHOP, make, prefixes=("/api",), **site.pages(make()))


def cookie_name(client: Any) -> str:
    return str(client.application.config["SESSION_COOKIE_NAME"])


def text(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "text/html" and "Traceback" not in answer.text
    return answer.text


def test_pages_are_hardened_and_have_no_script(odd: Any) -> None:
    for path in ("/", "/search?q=shirt", "/item?asin=B00000ODD1", "/nope"):
        answer = odd.get(path)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(r"<script|javascript:|<[^>]*\s(on\w+|style)=", answer.text)
    cookie = odd.get_cookie(cookie_name(odd))
    assert cookie is not None and cookie.http_only and cookie.same_site == "Lax"


def test_everything_is_escaped_and_nothing_is_evaluated(odd: Any) -> None:
    for answer in (odd.get("/"), odd.get("/search", query_string={"q": NASTY}), odd.get("/item?asin=B00000ODD1")):
        page = text(answer)
        assert "<script" not in page and "49" not in re.sub(r"\$[\d.,]+|B0\w+", "", page)
        assert "&lt;script&gt;" in page
    page = text(odd.get("/item?asin=B00000ODD1&tab=features"))
    assert "soft &lt;b&gt;cotton&lt;/b&gt;" in page
    page = text(odd.get("/item", query_string={"asin": "B00000ODD1", "q": NASTY}))
    assert "<script" not in page and "seedbench" in page


def test_odd_options_are_chosen_and_bought(odd: Any) -> None:
    """Quotes, slashes, brackets, button names and blank values: the original breaks on them (ReAct#18)."""
    chosen = {"o.color": 'the "blue"', "o.size": "large [wide]", "o.style": "next >"}
    page = text(odd.get("/item", query_string={"asin": "B00000ODD1", **chosen}))
    assert page.count('aria-current="true"') == 3
    assert odd.post("/buy", data={"asin": "B00000ODD1", **chosen}).headers["Location"] == "/done"
    page = text(odd.get("/done"))
    assert "color: the &#34;blue&#34;" in page and "size: large [wide]" in page


@pytest.mark.parametrize(
    "path, status",
    [
        ("/item", 404), ("/item?asin=NOPE", 404), ("/item?asin=../../etc/passwd", 404), ("/item/../..", 404),
        ("/item?asin=B00000ODD1&tab=x", 404), ("/item?asin=B00000ODD1&o.color=plaid", 400),
        ("/item?asin=B00000ODD1&o.nope=red", 400), ("/item?asin=B00000ODD1&page=x", 400),
        ("/search?q=shirt&page=0", 400), ("/search?q=shirt&page=-1", 400), ("/search?q=shirt&page=99", 404),
        ("/search?q=shirt&page=٣", 400), ("/search?q=" + "x" * 501, 400), ("/nope", 404), ("/buy", 405),
        ("/search?q=shirt&page=99999999999", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_a_page_with_a_way_back(odd: Any, path: str, status: int) -> None:
    page = text(odd.get(path), status)
    assert 'href="/"' in page and "<h1>" in page


def test_forms_refuse_what_the_pages_do_not_offer(odd: Any) -> None:
    assert "There is no such product in this shop." in text(odd.post("/buy"), 404)
    text(odd.post("/buy", data={"asin": "B00000ODD1", "o.color": "plaid"}), 400)
    text(odd.post("/buy", data={"asin": "x" * (2 << 20)}), 413)
    text(odd.post("/task", data={"split": "train"}), 400)
    assert odd.get("/done").headers["Location"] == "/"
    odd.set_cookie(cookie_name(odd), "forged.cookie.value")
    assert "red shirt" in text(odd.get("/"))


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.example"},
     {"Origin": "null"}, {"Origin": "http://[x"}, {"Origin": "http://localhost:81"}],
)  # fmt: skip
def test_a_form_of_another_site_is_refused_and_sets_no_cookie(odd: Any, headers: dict[str, str]) -> None:
    for path, fields in (("/task", {"split": "seen"}), ("/buy", {"asin": "B00000ODD1"})):
        answer = odd.post(path, data=fields, headers=headers)
        assert "another site" in text(answer, 403) and "Set-Cookie" not in answer.headers
    for own in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost"}, {}):
        assert odd.post("/task", data={"split": "seen"}, headers=own).status_code == 303


def test_two_shops_on_one_host_have_a_cookie_each(odd: Any) -> None:
    assert cookie_name(odd) != cookie_name(shop_app("mini").test_client())


def shop_of(monkeypatch: pytest.MonkeyPatch, options: dict[str, list[str]], **fields: Any) -> Any:
    """A client of a shop whose only product has these options, and whose task says `fields`."""
    raw = webshop_shop.record(
        "B00000ODD1", "Odd Shirt", customization_options={k: webshop_shop.values(*v) for k, v in options.items()}
    )
    found = list(preprocess([raw], webshop_shop.KNOWN, {}))
    shop = OddShop()
    shop.catalogue = MemoryCatalogue(found, frozen_prices(found))
    monkeypatch.setattr(shop, "goal", lambda task_id: webshop_shop.goal(**fields))
    monkeypatch.setattr("seedbench.envs.webshop.env.open_dataset", lambda data, goals: shop)
    return shop_app("mini").test_client()


def test_options_may_be_named_like_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("items", "keys", "__class__", "get")
    client = shop_of(monkeypatch, {name: ["a", "b"] for name in names})
    page = text(client.get("/item?asin=B00000ODD1&o.keys=b"))
    assert "built-in" not in page and "&lt;class" not in page
    assert page.count("<b>b</b>") == page.count('aria-current="true"') == 1
    client.post("/buy", data={"asin": "B00000ODD1", "o.keys": "b", "o.items": "a"})
    assert "items: a · keys: b" in text(client.get("/done"))


def test_a_purchase_of_long_options_fits_into_a_cookie(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {f"option {n}": [f"{n} " + stream_text(n), "other"] for n in range(19)}  # 20 would make a million goals
    client = shop_of(monkeypatch, long)
    bought = {f"o.{name}": found[0] for name, found in long.items()}
    answer = client.post("/buy", data={"asin": "B00000ODD1", **bought})
    assert answer.status_code == 303 and 0 < len(answer.headers["Set-Cookie"]) < 600
    page = text(client.get("/done"))
    assert all(found[0] in page for found in long.values())


def stream_text(n: int) -> str:
    """500 characters that do not compress well."""
    return "".join(f"{stream(n, k):x}" for k in range(40))[:500]


def test_lone_surrogates_are_replaced_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    client = shop_of(
        monkeypatch, {"color\ud800": ["red\udfff", "blue"]}, instruction_text="a \ud800 shirt",
        attributes=("soft\ud800",), goal_options={"color": "re\ud800"},
    )  # fmt: skip
    assert "a \ufffd shirt" in text(client.get("/"))
    for path in ("/search?q=shirt", "/item?asin=B00000ODD1&o.color%EF%BF%BD=red%EF%BF%BD", "/item?asin=B00000ODD1"):
        assert "a \ufffd shirt" in text(client.get(path))
    text(client.get("/nope"), 404)
    client.post("/buy", data={"asin": "B00000ODD1", "o.color\ufffd": "red\ufffd"})
    assert "color\ufffd: red\ufffd" in text(client.get("/done"))
    assert client.application.extensions["seedbench"].under_way == 0


def test_a_task_that_fails_has_a_page_too(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, task_id: str) -> Goal:
        raise ValueError("broken")

    monkeypatch.setattr(OddShop, "goal", broken)
    odd.application.testing = False
    for path in ("/", "/search?q=x", "/item?asin=B00000ODD1"):
        assert "That went wrong" in text(odd.get(path), 500)


def test_empty_and_strange_searches_find_nothing(odd: Any) -> None:
    for query in ("", " ", "zzzz", "<r>", "<a>", "\0", "ﷺ"):
        assert "Nothing found" in text(odd.get("/search", query_string={"q": query}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/", "/search", "/item", "/done", "/buy", "/task"]),
    fields=st.dictionaries(
        st.sampled_from(["q", "page", "asin", "tab", "split", "o.color", "o.size", "o.", "o.nope"]),
        st.text(max_size=30) | st.sampled_from(["B00000ODD1", "red", "1", "2", "features", "seen", NASTY]),
    ),
    method=st.sampled_from(["GET", "POST"]),
)
def test_no_request_makes_the_shop_fail(odd: Any, path: str, fields: dict[str, str], method: str) -> None:
    given_as = {"query_string": fields} if method == "GET" else {"data": fields}
    answer = odd.open(path, method=method, **given_as)
    assert answer.status_code in (200, 303, 400, 404, 405) and "<script" not in answer.text


def test_every_page_of_the_real_catalogue_can_be_shown(shared_data: Path) -> None:
    client = shop_app(shared_data / "webshop").test_client()
    env = WebShopEnv(data=shared_data / "webshop", tagger="lexicon")
    for number, asin in enumerate(env.catalogue.ids()):
        page = text(client.get("/item", query_string={"asin": asin, "tab": site.TABS[number % len(site.TABS)]}))
        assert (
            escape(env.catalogue.product(asin).title[:20]).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page
        )
    assert number >= 900


def test_results_come_ten_a_page_in_the_environments_order(folder: Path) -> None:
    client, env = shop_app(folder).test_client(), WebShopEnv(data=folder, tagger="lexicon")
    hits = env.catalogue.search("shirt")
    assert len(hits) > 20
    shown: list[str] = []
    path = "/search?q=Shirt"
    while path:
        page = text(client.get(path))
        on_page = re.findall(r'class="card" href="/item\?asin=(\w+)', page)
        assert len(on_page) == min(10, len(hits) - len(shown))
        shown += on_page
        forward = re.search(r'rel="next" href="([^"]+)"', page)
        path = forward[1].replace("&amp;", "&") if forward else ""
    assert shown == list(hits) and 'rel="prev"' in page


def buy(client: Any, env: WebShopEnv, task_id: str) -> tuple[float, str]:
    """Buy what the oracle would, through the forms; the score on the page and the page."""
    with client.session_transaction() as session:
        session.clear()
        session["task"] = task_id
    env.reset(options={"task": task_id})
    plan = env.plan()
    assert plan is not None
    form = {"asin": plan.asin, **{f"o.{k}": v for k, v in plan.options.items()}}
    assert client.post("/buy", data=form).status_code == 303
    page = text(client.get("/done"))
    return float(re.search(r'id="score">([\d.]+)<', page)[1]), page  # type: ignore[index]


def test_the_score_is_the_environments(folder: Path) -> None:
    client, env = shop_app(folder).test_client(), WebShopEnv(data=folder, tagger="lexicon")
    for task in env.tasks("unseen")[:8]:
        score, page = buy(client, env, task.id)
        assert score == pytest.approx(env.reachable(task.id), abs=5e-4)
        for wanted, _ in env._score(env._page._replace(kind="done", **chosen_of(env))).attributes:
            assert f"<td>{escape(wanted)}</td>" in page


def chosen_of(env: WebShopEnv) -> dict[str, Any]:
    plan = env.plan()
    assert plan is not None
    return {"asin": plan.asin, "options": dict(plan.options)}


def test_a_task_ends_with_one_purchase_and_another_task_begins_anew(folder: Path) -> None:
    client, env = shop_app(folder).test_client(), WebShopEnv(data=folder, tagger="lexicon")
    _, page = buy(client, env, env.tasks("seen")[0].id)
    other = next(i for i in env.catalogue.ids() if f">{i}<" not in page)
    assert client.post("/buy", data={"asin": other}).headers["Location"] == "/done"
    assert text(client.get("/done")) == page
    assert "Buy now" not in text(client.get(f"/item?asin={other}"))
    assert client.post("/task", data={"split": "unseen"}).status_code == 303
    assert client.get("/done").headers["Location"] == "/"
    with client.session_transaction() as session:
        assert session["task"] in {t.id for t in env.tasks("unseen")} and "bought" not in session
    assert "Buy now" in text(client.get(f"/item?asin={other}"))


def test_two_visitors_do_not_meet(folder: Path) -> None:
    app, env = shop_app(folder), WebShopEnv(data=folder, tagger="lexicon")
    one, two = app.test_client(), app.test_client()
    buy(one, env, env.tasks("seen")[0].id)
    assert two.get("/done").headers["Location"] == "/"


def test_the_api_beside_the_pages(folder: Path) -> None:
    client, env = shop_app(folder).test_client(), WebShopEnv(data=folder, tagger="lexicon")
    assert client.get("/api/health").json["digest"] == env.digest()
    task = env.tasks("seen")[0]
    said = client.post("/api/reset", json={"task": task.id}).json
    assert said["observation"] == env.reset(options={"task": task.id})[0]
    for _ in range(10):
        action = env.expert()
        assert action is not None
        said = client.post("/api/step", json={"session": said["session"], "action": action}).json
        observation, reward, terminated, *_ = env.step(action)
        assert (said["observation"], said["reward"]) == (observation, reward)
        if terminated:
            break
    goal = env.dataset.goal(task.id)
    assert said["done"] and goal.asin and goal.instruction_text not in said["observation"]
    answer = client.post("/api/step", json={"session": said["session"], "action": "click[buy now]"})
    assert answer.status_code == 409
    assert client.get("/api/nope").json["error"] == "no_such_page"
    assert client.get("/health").status_code == 404  # the API has one place here


def test_random_play_over_http_is_random_play_here(folder: Path) -> None:
    make = partial(WebShopEnv, data=folder, tagger="lexicon")
    new = WEBSHOP not in gym.registry
    if new:
        gym.register(id=WEBSHOP, entry_point=WebShopEnv, order_enforce=False)
    try:
        episodes = [Episode(task, trial=k) for task in make().tasks("seen")[:6] for k in range(2)]
        with threaded(shop_app(folder)) as url:
            there = list(play(remote.connect(url, WEBSHOP), episodes, Random(), slots=5))
        assert there == list(play(make, episodes, Random(), slots=5))
    finally:
        if new:
            gym.registry.pop(WEBSHOP)


# In a browser

CHROMIUM, DRIVER = "chromium", "chromedriver"
FLAGS: Sequence[str] = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1100,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need(
        shutil.which(CHROMIUM) and shutil.which(DRIVER), "no chromium or chromedriver (apt-get install chromium-driver)"
    )
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which(CHROMIUM))
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})  # none needed
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which(DRIVER))))
    yield driver
    driver.quit()


class Person:
    """Someone in front of the browser: looks until the page shows what was expected, as pages take their time."""

    def __init__(self, browser: Any):
        self.browser = browser

    def sees(self, css: str, says: str | set[str]) -> None:
        """Wait until the elements of that selector hold a text, or are just these."""
        from selenium.common.exceptions import StaleElementReferenceException

        found: list[str] = []
        until = time.monotonic() + 40  # a loaded machine takes its time
        while time.monotonic() < until:
            try:
                found = [e.text for e in self.browser.find_elements("css selector", css)]
            except StaleElementReferenceException:  # the page changed under the question
                continue
            if set(found) == says if isinstance(says, set) else any(says in text for text in found):
                return
        raise AssertionError(f"{css} shows {found}, not {says!r}, at {self.browser.current_url}")

    def clicks(self, link: str, how: str = "partial link text") -> None:
        """Click a link of the page that is there now; once more where the page was still changing."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

        for left in range(20, 0, -1):
            try:
                return self.browser.find_element(how, link).click()
            except (NoSuchElementException, StaleElementReferenceException):
                if left == 1:
                    raise
                time.sleep(0.5)

    def searches(self, words: str) -> None:
        from selenium.webdriver import Keys

        box = self.browser.find_element("id", "q")
        box.clear()
        box.send_keys(words + Keys.ENTER)
        self.sees("h1", words)

    def tabs_to(self, label: str) -> Any:
        """Move the keyboard's focus to the element of that text."""
        from selenium.webdriver import ActionChains, Keys

        for _ in range(120):  # twice around: a page that finishes loading takes the focus back to its start
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
            if self.browser.switch_to.active_element.text == label:
                return self.browser.switch_to.active_element
        raise AssertionError(f"the keyboard does not reach {label}")


def test_a_person_searches_chooses_options_buys_and_reads_the_score(browser: Any, folder: Path) -> None:
    env, person = WebShopEnv(data=folder, tagger="lexicon"), Person(browser)
    with threaded(shop_app(folder)) as url:
        browser.get(url)
        instruction = browser.find_element("id", "instruction").text
        goals = [env.dataset.goal(task.id) for task in env.tasks("seen")]
        goal = next(g for g in goals if g.instruction_text == instruction)
        wanted = goal.goal_options
        assert isinstance(wanted, dict)
        person.searches("shirt cream lamp")
        person.clicks("Next")
        person.sees(".pager", "Page 2 of")
        person.clicks("Prev")
        person.sees(".pager", "Page 1 of")
        person.searches(goal.name)
        person.clicks(f".card[href*='{goal.asin}']", "css selector")
        person.sees("h1", goal.name)
        for n, value in enumerate(wanted.values(), 1):
            person.clicks(value, "link text")
            person.sees(".option[aria-current]", set(list(wanted.values())[:n]))
        for tab, says in (("Features", goal.name), ("Reviews", "no reviews"), ("Attributes", goal.attributes[0])):
            person.clicks(tab)
            person.sees("#tab", says)
        browser.back()
        person.sees("#tab", "no reviews")
        person.sees(".option[aria-current]", set(wanted.values()))
        person.tabs_to("Buy now").send_keys("\n")
        person.sees("#score", "1.000")
        table = browser.find_element("tag name", "table").text
        assert all(wish in table for wish in (*goal.attributes, *wanted.values())) and "✗" not in table
        browser.back()
        person.sees(".item", "purchase is made")
        browser.get(f"{url}/done")
        person.sees("#score", "1.000")


@pytest.mark.parametrize("width", [360, 1100])
def test_no_page_is_wider_than_the_window(browser: Any, folder: Path, width: int) -> None:
    with threaded(shop_app(folder)) as url:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for path in ("/", "/search?q=" + "shirt+" * 20, "/item?asin=B000000002&q=shirt", "/nope"):
            browser.get(url + path)
            layout = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})
            assert layout["cssContentSize"]["width"] <= width, path
            assert browser.find_element("tag name", "h1").text
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
