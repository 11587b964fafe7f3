"""The page in a real browser, from a file: open, filter, search, click on a state, see its path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_browser
from browser import opened as browse
from graphs import by_hand

from tirgym.harness.decision_graph import DecisionGraph, save_graph

pytestmark = needs_browser

ATTACK = "<img src=x onerror=\"document.title='owned'\">"
GRAPH = by_hand(
    {
        "root": 1.0,
        "q": 1.0,
        "tiled": 2.0,
        "best": 8.0,
        "mid": None,
        "slow": 1.5,
        "wrong": "wrong_result",
        "broken": "crash",
    },
    [
        ("root", "q", "open questions"),
        ("q", "tiled", "p: tiled"),
        ("tiled", "best", "Vectorize(loop=3)"),
        ("root", "mid", "Split(loop=0, factor=4)"),
        ("mid", "slow", "Reorder(loop=1)"),
        ("root", "wrong", ATTACK),
        ("mid", "broken", "Unroll(loop=2)"),
        ("slow", "best", "CacheWrite(block=0)"),
    ],
    points={"q": ("p", ("tiled", "plain"), (50.0, 100.0))},
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium."""
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Any:
    """The page of GRAPH, on a screen of 1200 x 800."""
    return opened(browser, GRAPH, tmp_path)


def opened(browser: Any, graph: DecisionGraph, folder: Path, width: int = 1200) -> Any:
    save_graph(graph, folder / "graph.html")
    return browse(browser, folder / "graph.html", width)


def text(page: Any, name: str) -> str:
    return str(page.find_element("id", name).text)


def shown(page: Any) -> set[str]:
    """Ids of the states that the filter leaves."""
    return set(page.execute_script("return graph.told.nodes.filter(n => n.match).map(n => n.id)"))


def at(page: Any, state: str) -> tuple[int, int]:
    """Where a state is drawn, from the middle of the canvas."""
    x, y = page.execute_script("return graph.screen(graph.node(arguments[0]))", state)
    canvas = page.find_element("id", "graph").size
    return round(x - canvas["width"] / 2), round(y - canvas["height"] / 2)


def pointer(page: Any) -> Any:
    from selenium.webdriver import ActionChains

    return ActionChains(page)


def test_it_opens_with_the_best_state_and_asks_for_nothing_else(page: Any) -> None:
    assert page.title == "Decision graph: softmax"
    assert "8 of 8 states, 8 edges" in text(page, "counts")
    assert text(page, "headline") == "8.00x passed"
    asked = [e for e in page.get_log("performance") if "Network.requestWillBeSent" in e["message"]]
    urls = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert urls == []
    assert len(asked) <= 1  # the page itself


def test_a_status_is_shown_in_words(browser: Any, tmp_path: Path) -> None:
    graph = by_hand({"root": 1.0, "big": "out_of_memory"}, [("root", "big", "on")])
    page = opened(browser, graph, tmp_path)
    assert "out of memory (1)" in text(page, "statuses")
    page.execute_script("graph.select(graph.node('big'), true)")
    assert text(page, "headline") == "out of memory"


def test_a_click_on_a_state_shows_its_data_and_path(page: Any) -> None:
    canvas = page.find_element("id", "graph")
    pointer(page).move_to_element_with_offset(canvas, *at(page, "slow")).click().perform()
    assert text(page, "headline") == "1.50x passed"
    assert "code-slow" in text(page, "facts")
    steps = [item.text.splitlines()[0] for item in page.find_elements("css selector", "#way li")]
    assert steps == ["Split(loop=0, factor=4)", "Reorder(loop=1)"]
    assert "CacheWrite(block=0)" in text(page, "next")


def test_a_step_of_the_path_leads_to_its_state(page: Any) -> None:
    page.execute_script("graph.select(graph.node('slow'), true)")
    page.find_element("css selector", "#way li button").click()
    assert text(page, "headline") == "not judged"
    page.find_element("css selector", "#next li button").click()
    assert page.execute_script("return graph.chosen().id") == "slow"


def test_filters_by_status_and_by_speedup(page: Any) -> None:
    page.find_element("css selector", "#statuses input[name='passed']").click()
    assert shown(page) == {"mid", "wrong", "broken"}
    assert "3 of 8 states" in text(page, "counts")
    page.find_element("css selector", "#statuses input[name='passed']").click()
    page.execute_script(
        "const f = document.getElementById('fast'); f.value = 60;"
        "f.dispatchEvent(new Event('input'))"
    )
    assert shown(page) == {"best"}
    kept = page.execute_script("return graph.told.nodes.filter(n => n.shown).map(n => n.id)")
    assert "root" in kept  # what leads there stays
    assert text(page, "fast-value") == "3.48x"  # 8 ** 0.6, the scale is logarithmic


def test_search_lists_what_it_finds_and_enter_goes_to_the_first(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    box = page.find_element("id", "search")
    box.send_keys("crash")
    assert "1 states" in text(page, "found")
    box.send_keys(Keys.ENTER)
    assert text(page, "headline") == "crash"
    box.clear()
    box.send_keys("no such thing")
    assert "0 states" in text(page, "found")


def test_edges_have_tooltips(page: Any) -> None:
    canvas = page.find_element("id", "graph")
    (ax, ay), (bx, by) = at(page, "tiled"), at(page, "best")
    pointer(page).move_to_element_with_offset(canvas, (ax + bx) // 2, (ay + by) // 2).perform()
    tip = text(page, "tip")
    assert tip.splitlines()[0] == "Vectorize(loop=3)"
    assert "4.00x measured" in tip


def test_the_wheel_zooms_and_a_drag_pans(page: Any) -> None:
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    canvas = page.find_element("id", "graph")
    before = page.execute_script("return {...graph.view}")
    pointer(page).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    zoomed = page.execute_script("return {...graph.view}")
    assert zoomed["k"] > before["k"] * 1.2
    pointer(page).move_to_element_with_offset(canvas, -200, 150).click_and_hold().move_by_offset(
        60, 40
    ).release().perform()
    panned = page.execute_script("return {...graph.view}")
    assert panned["x"] - zoomed["x"] == pytest.approx(60, abs=6)
    assert panned["y"] - zoomed["y"] == pytest.approx(40, abs=6)
    page.find_element("id", "fit").click()
    assert page.execute_script("return graph.view.k") == pytest.approx(before["k"])


def test_arrow_keys_walk_the_tree(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = page.find_element("id", "graph")
    page.execute_script("graph.select(graph.node('root'), true)")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert page.execute_script("return graph.chosen().x") == 1
    canvas.send_keys(Keys.ARROW_LEFT)
    assert page.execute_script("return graph.chosen().id") == "root"


def test_text_of_the_data_is_never_markup(page: Any) -> None:
    page.execute_script("graph.select(graph.node('wrong'), true)")
    assert text(page, "way").splitlines()[0] == ATTACK
    page.find_element("id", "search").send_keys("onerror")
    assert ATTACK in text(page, "found")
    assert page.find_elements("tag name", "img") == []
    assert page.title == "Decision graph: softmax"


def test_on_a_phone_everything_fits_and_a_tap_selects(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, GRAPH, tmp_path, width=390)
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 390
    canvas = page.find_element("id", "graph")
    assert canvas.size["height"] > 250
    box = page.execute_script(
        "return graph.told && document.getElementById('graph').getBoundingClientRect()"
    )
    x, y = page.execute_script("return graph.screen(graph.node('mid'))")
    point = {"x": box["x"] + x, "y": box["y"] + y}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.execute_script("return graph.chosen().id") == "mid"


def test_two_thousand_states_are_drawn_whole(browser: Any, tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(2000)]
    edges = [(names[(at - 1) // 2], names[at], f"Split(loop={at})") for at in range(1, 2000)]
    page = opened(browser, by_hand(dict.fromkeys(names, 1.0), edges), tmp_path)
    assert "2000 of 2000 states, 1999 edges" in text(page, "counts")
    frames = page.execute_script(
        "return new Promise(done => { let frames = 0; const step = () => { graph.fit();"
        "if (++frames === 20) done(frames); else requestAnimationFrame(step); };"
        "requestAnimationFrame(step); })"
    )
    assert frames == 20
    places = page.execute_script("return graph.told.nodes.map(n => graph.screen(n))")
    size = page.find_element("id", "graph").size
    assert all(0 <= x <= size["width"] and 0 <= y <= size["height"] for x, y in places)
    assert len({(x, y) for x, y in places}) == 2000
