"""The website in a real browser, from files: a person's path, a phone, keys, and hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_browser, opened
from made_board import ATTACK, made_board

from tirgym.benchmarks.leaderboard.site import write_site

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    write_site(made_board(), folder)
    return folder


@pytest.fixture
def page(browser: Any, site: Path) -> Any:
    """The first page."""
    return opened(browser, site / "index.html")


def all_of(page: Any, css: str) -> list[str]:
    return [found.text for found in page.find_elements("css selector", css)]


def column(page: Any, place: str, name: str) -> list[str]:
    """First lines of a column's cells; of an agent's cell the name alone."""
    head = [text.rstrip(" ▲▼") for text in all_of(page, f"#{place} thead th")]
    css = f"#{place} tbody tr > :nth-child({head.index(name) + 1})"
    cells = page.find_elements("css selector", css)
    parts = [[*cell.find_elements("css selector", ".who a"), cell][0].text for cell in cells]
    return [text.splitlines()[0] if text else "" for text in parts]


def press(page: Any, css: str, text: str) -> None:
    """Click on the first of `css` that shows `text`."""
    found = [f for f in page.find_elements("css selector", css) if text in f.text]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])
    found[0].click()


def choose(page: Any, name: str, value: str) -> None:
    page.find_element("css selector", f"input[name='{name}'][value='{value}']").click()


def select(page: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", name)).select_by_value(value)


def best_first(trials: str) -> list[str]:
    return [row["agent"] for row in made_board()["rankings"][trials] if row["headline"]]


def test_a_persons_path_from_the_ranking_to_a_kernel_and_to_two_agents(page: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert page.title == "Leaderboard of core-v0"
    assert column(page, "headline", "agent") == best_first("64")
    assert column(page, "others", "agent")[0] == "ppo-gnn"

    choose(page, "trials", "16")
    assert column(page, "headline", "agent") == best_first("16")
    press(page, "#headline thead button", "fast_2")
    shares = [int(text.split()[0]) for text in column(page, "headline", "fast_2")]
    assert shares == sorted(shares, reverse=True)
    press(page, "#headline thead button", "fast_2")
    assert column(page, "headline", "fast_2")[0] == f"{min(shares)} %"
    sorted_by = page.find_element("css selector", "#headline th[aria-sort]")
    assert (sorted_by.get_attribute("aria-sort"), "fast_2" in sorted_by.text) == ("ascending", True)

    page.find_element("id", "find").send_keys("beam evol")
    assert sorted(column(page, "headline", "agent")) == ["beam", "evolutionary"]
    assert "2 of 13 rows shown, at 16 trials" in all_of(page, "#shown")

    press(page, "#workloads tbody a", "matmul")
    assert page.title == "matmul on core-v0"
    assert "m=250, n=264, k=240" in all_of(page, "#facts dd")
    assert "evolutionary, seed 0" in all_of(page, "#trace-said")[0]
    press(page, "#trace button.link", "Vectorize")
    WebDriverWait(page, 10).until(lambda _: all_of(page, "#steps details[open] ins"))
    assert any("T.vectorized" in line for line in all_of(page, "#steps details[open] ins"))

    press(page, "nav a", "Compare agents")
    select(page, "first", "vendor-torch")
    select(page, "second", "metaschedule")
    select(page, "first", "evolutionary")
    (verdict,) = all_of(page, "#verdict")
    assert "evolutionary is 1." in verdict
    assert "with probability 0." in verdict
    assert len(column(page, "workloads", "workload")) == len(made_board()["workloads"])
    assert [e for e in page.get_log("browser") if e["level"] == "SEVERE"] == []


def test_the_site_asks_for_nothing_but_its_files(browser: Any, site: Path) -> None:
    browser.get_log("performance")
    for file in (site / "index.html", site / "compare.html", *(site / "kernels").iterdir()):
        opened(browser, file)
        asked = "return performance.getEntriesByType('resource').map(e => e.name)"
        assert browser.execute_script(asked) == []
    sent = [e for e in browser.get_log("performance") if "requestWillBeSent" in e["message"]]
    urls = [e["message"] for e in sent if '"url":"http' in e["message"]]
    assert urls == []


def test_what_is_chosen_stays_in_the_address(page: Any) -> None:
    choose(page, "trials", "16")
    choose(page, "columns", "spent")
    page.find_element("id", "find").send_keys("llm")
    page.refresh()
    assert column(page, "headline", "tokens") == ["41,000"]
    assert "at 16 trials" in all_of(page, "#shown")[0]


def test_kinds_of_rows_are_filtered(page: Any) -> None:
    press(page, "#kinds label", "references")
    assert "noop" not in column(page, "headline", "agent")
    assert "metaschedule" in column(page, "headline", "agent")
    press(page, "#kinds label", "peers")
    press(page, "#kinds label", "agents")
    assert all_of(page, "#headline tbody td") == ["no row of this kind, or none that matches"]


def test_speedups_against_others_and_share_of_the_roofline(page: Any) -> None:
    table = {entry["workload"]: entry["cells"]["64"] for entry in made_board()["workload_table"]}
    cells = next(cells for uri, cells in table.items() if "matmul" in uri)
    select(page, "against", "metaschedule")
    ratio = cells["beam"]["speedup"] / cells["metaschedule"]["speedup"]
    assert column(page, "workloads", "beam")[0] == f"{ratio:.2f}x"
    select(page, "against", "roofline")
    assert column(page, "workloads", "beam")[0] == f"{100 * cells['beam']['roofline']:.0f} %"
    select(page, "family", "softmax")
    assert column(page, "workloads", "workload") == ["softmax"]


def test_what_was_not_verified_is_named_with_its_reason(page: Any) -> None:
    assert "420 answers" in all_of(page, "#denominator")[0]
    rows = dict(
        zip(column(page, "failures", "agent"), column(page, "failures", "standing"), strict=True)
    )
    assert rows["random"] == "failed"
    assert rows["mcts"] == "no record"
    assert rows["greedy"] == "not measured"
    assert rows["vendor-torch"] == "has none"
    seeds = dict(
        zip(column(page, "failures", "agent"), column(page, "failures", "seeds"), strict=True)
    )
    assert (seeds["random"], seeds["mcts"]) == ("0, 1, 2", "2")


def test_wall_time_of_metaschedule_as_it_ships_stands_beside_ours(page: Any) -> None:
    assert column(page, "shipped", "workload") == ["matmul"]
    assert column(page, "shipped", "as it ships") == ["95.0 s"]
    assert column(page, "shipped", "beam") == ["25.6 s 3.7x"]


def test_hostile_names_are_text_on_every_page(browser: Any, site: Path) -> None:
    for name in ("index.html", "compare.html", "kernels/matmul.html", "kernels/softmax.html"):
        page = opened(browser, site / name)
        assert "owned" not in page.title
        assert page.find_elements("css selector", "img, main script") == []
        assert ATTACK in page.execute_script(
            "return document.getElementById('content').textContent"
        )
    page = opened(browser, site / "compare.html")
    select(page, "first", ATTACK)
    page.refresh()
    assert page.execute_script("return document.getElementById('first').value") == ATTACK


def test_charts_are_read_with_the_keyboard_and_lines_hidden(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    chart = page.find_elements("css selector", "#charts svg.chart")[2]
    chart.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    said = chart.get_attribute("aria-valuetext")
    beam = made_board()["curves"]["agents"]["beam"][1]
    assert said.startswith("trials: 2; ")
    assert f"beam {beam:.2f}x" in said
    lines = len(chart.find_elements("css selector", "path"))
    figure = chart.find_element("xpath", "..")
    button = next(b for b in figure.find_elements("css selector", "button") if "beam" in b.text)
    button.send_keys(Keys.ENTER)
    assert len(chart.find_elements("css selector", "path")) == lines - 1
    assert button.get_attribute("aria-pressed") == "false"
    assert "beam" not in str(chart.get_attribute("aria-valuetext"))


def test_everything_that_acts_has_a_name_and_is_reached_by_tab(browser: Any, site: Path) -> None:
    for name in ("index.html", "compare.html", "kernels/matmul.html"):
        page = opened(browser, site / name)
        tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = ("button", "link", "radio", "checkbox", "combobox", "searchbox", "slider", "region")
        found = [node for node in tree if node.get("role", {}).get("value") in roles]
        assert len(found) > 20
        assert [node for node in found if not node.get("name", {}).get("value")] == []
        stuck = (
            "return [...document.querySelectorAll('[tabindex]')].filter(e => e.tabIndex > 0).length"
        )
        assert page.execute_script(stuck) == 0


@pytest.mark.parametrize("name", ["index.html", "compare.html", "kernels/matmul.html"])
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, site: Path, name: str) -> None:
    page = opened(browser, site / name, width=390)
    for details in page.find_elements("css selector", "#steps details"):
        page.execute_script("arguments[0].open = true", details)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    assert page.execute_script("return innerWidth") == 390


@pytest.mark.parametrize("agents", [("a/a",), ("noop",), ("a/a", "random", ATTACK)])
def test_a_board_with_little_in_it(browser: Any, tmp_path: Path, agents: tuple[str, ...]) -> None:
    for file in write_site(made_board(("softmax",), (0,), agents), tmp_path):
        page = opened(browser, file)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 1200
