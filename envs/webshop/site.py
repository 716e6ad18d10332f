"""A shop for people: the same catalogue, search and score as the environment's, as plain pages for any browser.

Pages are links and forms, without a script. Query, page and options stand in the query string; the signed cookie holds
the task and, after it, the purchase (an option by its place, so that it stays below a browser's 4 kB). So the server
keeps nothing, and the back button works.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, current_app, redirect, render_template, request, session, url_for
from flask.sansio.blueprints import BlueprintSetupState
from werkzeug.wrappers import Response as AnyResponse

from seedbench.core import SeedbenchError, stream
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.goals import UNBOUNDED, Goal
from seedbench.envs.webshop.pages import PER_PAGE
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.reward import RewardParts, explain_reward

SPLITS = ("seen", "unseen", "dev", "train", "paper")
TABS = ("description", "features", "reviews", "attributes")
OPTION = "o."  # prefix of an option's name in query strings and forms
LONGEST_QUERY = 500
HUES = 8
POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def pages(env: WebShopEnv) -> dict[str, Any]:
    """What seedbench.serve.app.create_app takes to show the shop: its pages, and how an error of theirs looks."""
    return {"pages": _blueprint(Shop(env)), "page_error": page_error}


@dataclass(frozen=True)
class Shop:
    """What the pages read: catalogue, tasks and scores of an environment that is never stepped."""

    env: WebShopEnv

    def splits(self) -> dict[str, int]:
        """Each split that the data hold, with the number of its tasks."""
        found = {}
        for split in SPLITS:
            try:
                found[split] = len(self.env.tasks(split))
            except SeedbenchError:  # these files hold no such split
                continue
        return found

    def draw(self, split: str) -> str:
        """The id of a random task."""
        return secrets.choice(self.env.tasks(split)).id

    def goal(self) -> Goal:
        """What this visitor shall buy; a new visitor gets a task."""
        if "task" not in session:
            session["task"] = self.draw(next(iter(self.splits())))
        return self.env.dataset.goal(session["task"])

    def product(self, asin: str) -> Product:
        """The product of an id; 404 where there is none."""
        if asin not in self.env.catalogue:
            abort(404, "there is no such product in this shop")
        found = self.env.catalogue.product(asin)
        return replace(found, **{f.name: _clean(getattr(found, f.name)) for f in fields(found)})

    def explain(self, asin: str, options: Mapping[str, str]) -> RewardParts:
        """The score of a purchase, and its parts."""
        env, product = self.env, self.product(asin)
        return explain_reward(self.goal(), product, env.catalogue.price(asin), options, env.tagger, env.reward)


def _blueprint(shop: Shop) -> Blueprint:
    site = Blueprint("shop", __name__, template_folder="templates")
    site.record_once(_cookies)
    site.before_request(_own_forms_only)
    site.after_request(_harden)
    site.add_app_template_filter(_dollars, "dollars")
    site.add_app_template_filter(_hue, "hue")

    @site.context_processor
    def common() -> dict[str, Any]:
        goal = shop.goal()
        bound = "" if goal.price_upper >= UNBOUNDED else f"{goal.price_upper:,.2f}"
        return {
            "instruction": _clean(goal.instruction_text),
            "bound": bound,
            "bought": session.get("bought"),
            "query": "",
        }

    @site.get("/")
    def start() -> str:
        shop.goal()
        return render_template("start.html", splits=shop.splits(), task=session["task"])

    @site.get("/search")
    def search() -> str:
        query, number = _query(), _page_number()
        hits = shop.env.catalogue.search(query.lower()) if query else ()
        last = max(1, -(-len(hits) // PER_PAGE))
        if number > last:
            abort(404, f"these results have {last} page{'s' if last > 1 else ''}")
        shown = [shop.product(asin) for asin in hits[(number - 1) * PER_PAGE : number * PER_PAGE]]
        return render_template(
            "results.html",
            query=query,
            number=number,
            last=last,
            total=len(hits),
            products=shown,
            first=(number - 1) * PER_PAGE,
        )

    @site.get("/item")
    def item() -> str:
        product = shop.product(request.args.get("asin", ""))
        chosen = _chosen(product, request.args)
        tab = request.args.get("tab", TABS[0])
        if tab not in TABS:
            abort(404, "there is no such tab")
        here: dict[str, Any] = {"asin": product.asin, "q": _query(), "page": _page_number()}

        def link(**changes: str) -> str:
            options = {OPTION + name: value for name, value in chosen.items()}
            return url_for("shop.item", **{**here, "tab": tab, **options, **changes})

        return render_template(
            "item.html", product=product, chosen=chosen, tab=tab,
            rows=[(name, values, chosen.get(name)) for name, values in product.options.items() if values],
            tabs=TABS, link=link, option=OPTION,
            query=here["q"], number=here["page"],
        )  # fmt: skip

    @site.post("/buy")
    def buy() -> AnyResponse:
        product = shop.product(request.form.get("asin", ""))
        if not session.get("bought"):  # a task ends with one purchase
            shop.goal()
            session["bought"] = {"asin": product.asin, "options": _places(product, _chosen(product, request.form))}
        return redirect(url_for("shop.done"), 303)

    @site.get("/done")
    def done() -> str | AnyResponse:
        bought = session.get("bought")
        if not bought:
            return redirect(url_for("shop.start"), 303)
        product = shop.product(bought["asin"])
        chosen = _at(product, bought["options"])
        parts = shop.explain(product.asin, chosen)
        return render_template(
            "done.html",
            product=product,
            chosen=chosen,
            parts=replace(parts, attributes=_clean(parts.attributes), options=_clean(parts.options)),
            splits=shop.splits(),
        )

    @site.post("/task")
    def task() -> AnyResponse:
        split = request.form.get("split", "")
        if split not in shop.splits():
            abort(400, "there is no such split of tasks here")
        session.clear()
        session["task"] = shop.draw(split)
        return redirect(url_for("shop.start"), 303)

    @site.get("/shop.css")
    def style() -> Response:
        response = Response(render_template("shop.css"), mimetype="text/css")
        response.headers["Cache-Control"] = "max-age=300"
        return response

    return site


def _cookies(state: BlueprintSetupState) -> None:
    """A cookie of this process alone: shops at other ports of the same host have other names for theirs."""
    key = secrets.token_bytes(32)
    state.app.config.update(
        SECRET_KEY=key,
        SESSION_COOKIE_NAME=f"seedbench_shop_{hashlib.sha256(key).hexdigest()[:8]}",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_HTTPONLY=True,
    )


def _own_forms_only() -> None:
    """403 for a form on another site: it comes without the cookie, and the answer would replace the visitor's task."""
    if request.method != "POST":
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None:  # an older browser, or none
        own = origin is None or _host(origin) == request.host
    else:
        own = site in ("same-origin", "none")
    if not own:
        abort(403, "this form was sent from another site")


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def page_error(status: int, cause: str) -> Response:
    """A page that says what was wrong and has a way back. It does not show the task, which may be the cause."""
    page = current_app.jinja_env.get_template("error.html")
    return _harden(Response(page.render(status=status, cause=_clean(cause), query=""), status))


def _harden(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _query() -> str:
    query = " ".join(request.args.get("q", "").split())
    if len(query) > LONGEST_QUERY:
        abort(400, f"a query has at most {LONGEST_QUERY} characters")
    return query


def _page_number() -> int:
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text) > 0):
        abort(400, "a page is a number from 1")
    return int(text)


def _chosen(product: Product, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a request; 400 for one that the product does not offer."""
    chosen = {name[len(OPTION) :]: value for name, value in given.items() if name.startswith(OPTION)}
    for name, value in chosen.items():
        if value not in product.options.get(name, ()):
            abort(400, "this product does not come with that option")
    return {name: chosen[name] for name in product.options if name in chosen}


def _places(product: Product, chosen: Mapping[str, str]) -> list[int]:
    """The place of each option's chosen value, -1 where none is chosen."""
    return [values.index(chosen[name]) if name in chosen else -1 for name, values in product.options.items()]


def _at(product: Product, places: Sequence[int]) -> dict[str, str]:
    pairs = zip(product.options.items(), places, strict=True)
    return {name: values[place] for (name, values), place in pairs if place >= 0}


def _clean(value: Any) -> Any:
    """`value` with U+FFFD for lone surrogates, which no page can hold."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, tuple | list):
        return type(value)(map(_clean, value))
    if isinstance(value, Mapping):
        return {_clean(name): _clean(inner) for name, inner in value.items()}
    return value


def _dollars(prices: tuple[float, ...]) -> str:
    return " – ".join(f"${price:,.2f}" for price in prices)


def _hue(asin: str) -> int:
    return stream(asin) % HUES
