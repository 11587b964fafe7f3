"""The tree of stored walks: what it lets through, and when it says that questions changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small import SMALL, make

from tirgym.errors import TargetMismatchError
from tirgym.harness.decisions import RandomAgent, Walk, design_space
from tirgym.harness.decisions.answer_tree import AnswerTree, Place
from tirgym.harness.status import Status
from tirgym.harness.store import StoredWalk

ROOT = design_space(make(SMALL["add"]))


def stored(walk: Walk, status: Status | None = Status.PASSED) -> StoredWalk:
    path = tuple((answer.key, answer.value) for answer in walk.answers)
    return StoredWalk(path, walk.program.ir_key, "test", status)


WALKS = [ROOT.follow(RandomAgent(seed)) for seed in range(6)]
KNOWN = {stored(walk).path: walk.program.ir_key for walk in WALKS}


def ends(walk: Walk, place: Place) -> dict[tuple[tuple[str, int], ...], str]:
    """Every end that the options of `place` lead to."""
    question = walk.question
    if question is None:
        return {stored(walk).path: walk.program.ir_key}
    found = {}
    for option in place.options:
        after = walk.answer(option)
        found.update(ends(after, place.follow(question.options[option].value, after)))
    return found


def test_its_options_lead_to_every_stored_walk_and_to_nothing_else() -> None:
    tree = AnswerTree(map(stored, WALKS), "add")
    place = tree.begin(ROOT)
    assert ends(ROOT, place) == KNOWN
    assert tree.size == len(KNOWN)


def test_verdicts_that_do_not_stand_are_no_walks() -> None:
    unsettled = [stored(WALKS[0], Status.NOISY), stored(WALKS[1], None)]
    tree = AnswerTree([*unsettled, stored(WALKS[2])], "add")
    assert ends(ROOT, tree.begin(ROOT)) == {stored(WALKS[2]).path: WALKS[2].program.ir_key}
    assert AnswerTree(unsettled, "add").size == 0


def changed(number: int, key: str | None = None, value: int | None = None) -> StoredWalk:
    """The first stored walk with another key or value at one place."""
    path = list(stored(WALKS[0]).path)
    path[number] = (key or path[number][0], path[number][1] if value is None else value)
    return replace(stored(WALKS[0]), path=tuple(path))


@pytest.mark.parametrize(
    ("walk", "said"),
    [
        (changed(0, key="nobody.asks"), "was not asked at this place"),
        (changed(0, value=12345), "had other options"),
        (changed(-1, value=12345), "had other options"),
        (replace(stored(WALKS[0]), ir_key="another"), "lead to another program"),
        (replace(stored(WALKS[0]), path=stored(WALKS[0]).path[:-1]), "was not asked"),
    ],
)
def test_questions_that_changed_since_are_one_line_with_a_remedy(
    walk: StoredWalk, said: str
) -> None:
    tree = AnswerTree([walk], "add in store s.sqlite")
    with pytest.raises(TargetMismatchError, match=said) as error:
        ends(ROOT, tree.begin(ROOT))
    assert str(error.value).startswith("add in store s.sqlite was recorded with other decision")
    assert "tirgym store record" in str(error.value)


def test_walks_that_contradict_each_other_are_refused() -> None:
    first = stored(WALKS[0])
    others = (
        replace(first, path=(("other", 1), *first.path[1:])),
        replace(first, path=first.path[:-1]),
        replace(first, path=(*first.path, ("more", 1))),
        replace(first, ir_key="another"),
    )
    for other in others:
        with pytest.raises(TargetMismatchError, match="other decision points"):
            AnswerTree([first, other], "add")


def test_a_kernel_without_questions_is_a_tree_of_one() -> None:
    done = WALKS[0]
    tree = AnswerTree([StoredWalk((), done.program.ir_key, "static", Status.PASSED)], "toy")
    assert tree.begin(replace(done, answers=())).options == ()
