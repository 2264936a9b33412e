"""Text made fit to be shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.api.text import printable

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_what_is_shown_is_one_line_of_printable_characters_that_utf8_can_carry(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode().decode() == shown
    assert printable(shown) == shown


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
