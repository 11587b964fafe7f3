"""The website as text: complete, nothing from outside, nothing from the data that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_board import ATTACK, KERNELS, made_board
from pages_as_text import assert_sealed, parsed

from tirgym.benchmarks.leaderboard.site import write_site
from tirgym.benchmarks.leaderboard.site.pages import page_names
from tirgym.errors import InvalidValueError


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Text of each page by its name."""
    folder = tmp_path_factory.mktemp("site")
    files = write_site(made_board(), folder)
    return {file.relative_to(folder).as_posix(): file.read_text() for file in files}


def data(text: str) -> Any:
    return json.loads(next(s for s in parsed(text).scripts if s.startswith("{")))


def test_a_page_for_the_board_for_two_agents_and_for_each_workload(pages: dict[str, str]) -> None:
    names = {f"kernels/{name.replace('_', '-')}.html" for name in KERNELS}
    assert set(pages) == {"index.html", "compare.html", *names}


def test_every_answer_is_on_the_page_of_its_workload(pages: dict[str, str]) -> None:
    board = made_board()
    shown = [cell for name, page in pages.items() if "/" in name for cell in data(page)["cells"]]
    assert len(shown) == len(board["cells"]) == board["counts"]["expected"]
    lost = [cell for cell in board["cells"] if cell["standing"] != "verified"]
    assert lost
    on_first = data(pages["index.html"])["unverified"]
    assert sum(cell["standing"] != "verified" for cell in on_first) == len(lost)


def test_links_lead_to_pages_that_are_there(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        root = "../" if "/" in name else ""
        links = [a["href"] for tag, a in parsed(page).found if tag == "a"]
        assert links == ["#content", f"{root}index.html", f"{root}compare.html"]
        told = data(page)
        assert told["root"] == root
        assert set(told["pages"].values()) == {name for name in pages if "/" in name}


def test_hostile_names_come_back_as_data_and_are_never_markup(pages: dict[str, str]) -> None:
    for page in pages.values():
        assert ATTACK in {agent["name"] for agent in data(page)["agents"]}
        tags = parsed(page)
        scripts = [attributes for tag, attributes in tags.found if tag == "script"]
        assert scripts == [{"type": "application/json", "id": "data"}, {}]
        assert not [tag for tag, _ in tags.found if tag in ("img", "iframe", "object", "base")]


def test_nothing_is_loaded_and_only_the_shipped_script_runs(pages: dict[str, str]) -> None:
    for page in pages.values():
        assert_sealed(page, ("src", "srcset", "action", "style"))
        assert "{{" not in page


def test_names_of_pages_are_plain_and_unique() -> None:
    labels = ("../../etc/passwd", "a b", "a/b", "A-B", "<script>", "")
    found = page_names({"workloads": [{"uri": label, "label": label} for label in labels]})
    assert list(found.values()) == [
        "kernels/etc-passwd.html", "kernels/a-b.html", "kernels/a-b-2.html", "kernels/a-b-3.html",
        "kernels/script.html", "kernels/kernel.html",
    ]  # fmt: skip


def test_a_board_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="tirgym-board-1"):
        write_site({"format": "tirgym-board-9"}, tmp_path)
    assert list(tmp_path.iterdir()) == []
