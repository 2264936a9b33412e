"""Text of users and engines made fit to be shown: in messages, in status, on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""One line in which nothing but characters to read is left.

    White space becomes spaces; every other character that is not printable (escape sequences of terminals,
    marks that reverse the direction, halves of surrogate pairs) becomes its Python escape.

    >>> printable("red:\x1b[31m\nnext"), printable("漢 é")
    ('red:\\x1b[31m next', '漢 é')
    """
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() and character not in _SEPARATORS else ascii(character)[1:-1]


# Python counts these as white space; a terminal may do anything with them.
_SEPARATORS = frozenset("\x1c\x1d\x1e\x1f\x85")
