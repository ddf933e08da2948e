"""Names as text that is safe to show: one line, no terminal control, and still exact.

A file name is any bytes but NUL and ``/``. Printed raw it can move the cursor, forge a second line
or turn the text around it. `printable` shows what is printable as it is, and the rest as escapes:

======================================  ==============  ========================================
in the name                             shown as        example
======================================  ==============  ========================================
ASCII control character, DEL            ``\\xNN``        ESC is ``\\x1b``, a newline ``\\x0a``
byte that is not part of UTF-8          ``\\xNN``        ``\\xff`` (always 80 or above)
other character that is not printable   ``\\uNNNN``      a bidi override is ``\\u202e``
the same above U+FFFF                   ``\\UNNNNNNNN``  a tag character is ``\\U000e0041``
backslash that would read as one above  ``\\x5c``        the four characters ``\\x1b`` are shown
                                                        as ``\\x5cx1b``
======================================  ==============  ========================================

Any other backslash is shown as it is. Reading the escapes back from left to right gives the bytes
again, so two names never share a form. Printable is what `str.isprintable` says: letters, marks,
numbers, punctuation, symbols and the ASCII space; neither controls, format characters (bidi, zero
width), other white space, nor code points without a meaning.
"""

from __future__ import annotations

import base64
import re

_READS_AS_ESCAPE = re.compile(r"\\(?=x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


def printable(name: str | bytes) -> str:
    """Return `name` (bytes, or text with surrogate escapes) as one line, exact and safe to show."""
    exact = name if isinstance(name, bytes) else _bytes(name)
    # None: a surrogate that stands for no byte. That is no name, but it is still shown.
    text = str(name) if exact is None else exact.decode("utf-8", "surrogateescape")
    return one_line(_READS_AS_ESCAPE.sub(r"\\x5c", text))


def one_line(text: str) -> str:
    """Return `text` with the unprintable escaped as `printable` does, backslashes left alone.

    For whole messages, which may hold names that went through `printable` before: applying it
    twice changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(ord(char)) for char in text)


def reference(name: str | bytes) -> str | None:
    """Return the base64url (RFC 4648, padded) of a name that `printable` has to escape, else None.

    It is the exact form that stands beside the printable one in JSON. None also for text that
    stands for no bytes at all (a surrogate that escapes nothing).
    """
    exact = name if isinstance(name, bytes) else _bytes(name)
    if exact is None or printable(exact).encode() == exact:
        return None
    return base64.urlsafe_b64encode(exact).decode("ascii")


def _bytes(text: str) -> bytes | None:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _escape(point: int) -> str:
    if point < 0x80:
        return f"\\x{point:02x}"
    if 0xDC80 <= point <= 0xDCFF:  # PEP 383, surrogateescape: a byte that is not UTF-8
        return f"\\x{point - 0xDC00:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
