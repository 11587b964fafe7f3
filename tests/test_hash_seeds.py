"""The fixture `alike` sees what depends on the order of sets, and what fails."""

from __future__ import annotations

import pytest
from hash_seeds import Alike


def test_what_depends_on_hashes_is_seen(alike: Alike) -> None:
    assert alike("import sys; print(sorted({'loop', 'block'}), sys.argv[1:])", 3) == (
        "['block', 'loop'] ['3']\n"
    )
    with pytest.raises(AssertionError):
        alike("print({f'loop {i}' for i in range(99)})")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        alike("1 / 0")
    assert alike("print('goes on')") == "goes on\n"
