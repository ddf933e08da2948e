"""Virtual paths and what they mean, without a filesystem.

Models and APIs see one namespace:

===========================  ===========================================================
``/home/gem``                the namespace itself; it holds the two below, nothing else
``/home/gem/user-data/...``  the user's workspace, the Workdir somewhere in it
``/home/gem/skills/...``     the skills that the user may see
===========================  ===========================================================

These are runtime paths (`resolve`, and back by `virtual`). Short paths of older platforms are
aliases of them; of two that fit the longer counts, and a path at or below ``/home/gem`` is never
one. Scope paths are another kind (`scope_parts`): ``/x`` is ``x`` inside the Workdir. Each function
refuses the other's paths as far as they can be told apart: what is at or below ``/home/gem`` is a
runtime path, so a Workdir's own ``home/gem`` cannot be named by a scope path.

Both kinds are exact bytes, given as bytes or as text with surrogate escapes (PEP 383), and are
absolute. NUL, an empty part (``//``), ``.`` and ``..`` are refused and never resolved. One trailing
slash is allowed and adds nothing. All else may stand in a name: backslashes, newlines, spaces at
its end, bytes that are not UTF-8. How long a name may be is the filesystem's business.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal

from vfs.errors import InvalidPath, NotFound
from vfs.printable import printable

HOME: Final = "/home/gem"
"""The root of the namespace."""
USER_DATA: Final = f"{HOME}/user-data"
"""The user's workspace."""
SKILLS: Final = f"{HOME}/skills"
"""The user's projection of the skills."""

USER_DATA_NAME: Final = b"user-data"
SKILLS_NAME: Final = b"skills"
"""The names of the two in `HOME`."""

PROJECTS: Final = "projects"
"""The top-level entry of a workspace that holds the managed Workdirs."""
AGENTS: Final = "agents"
"""The top-level entry of a workspace that is reserved for the agents' memory and skills."""

WORKDIR_ALIASES: Final = {
    "/workspace": "",
    "/uploads": "uploads",
    "/outputs": "outputs",
    "/attachments": "uploads/attachments",
    "/home": "",
    "/mnt/user-data/workspace": "",
    "/mnt/user-data/uploads": "uploads",
    "/mnt/user-data/outputs": "outputs",
    "/mnt/user-data/large_tool_results": "large_tool_results",
}
"""Alias → relative path below the current Workdir, empty for the Workdir itself."""
SKILLS_ALIASES: Final = ("/skills", "/mnt/skills")
"""Aliases of `SKILLS`."""

Root = Literal["home", "user-data", "skills"]
"""Where a `Location` starts: at `HOME`, `USER_DATA` or `SKILLS`."""


def _names(path: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in path.split("/") if name)


_ROOT_PATHS: Final[dict[Root, str]] = {"home": HOME, "user-data": USER_DATA, "skills": SKILLS}
_ROOTS: Final = {_names(path): root for root, path in _ROOT_PATHS.items()}
_HOME_NAMES: Final = _names(HOME)
_WORKDIR_ALIASES: Final = {_names(a): _names(below) for a, below in WORKDIR_ALIASES.items()}
_SKILLS_ALIASES: Final = frozenset(_names(alias) for alias in SKILLS_ALIASES)
_LONGEST_ALIAS: Final = max(map(len, (*_WORKDIR_ALIASES, *_SKILLS_ALIASES)))

# The hyphenated form alone (RFC 9562, section 4), in either case. Other spellings of a UUID are
# names of their own: read as UUIDs, they would turn one existing directory into another.
_MANAGED: Final = re.compile(
    PROJECTS + r"/[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
)


@dataclass(frozen=True, slots=True)
class WorkdirPath:
    """A checked path of a Workdir, relative to the user's workspace; made by `workdir_path`."""

    text: str
    """POSIX path, text with surrogate escapes; ``projects/<lower-case uuid>`` if managed."""
    kind: Literal["managed", "linked"]
    """Managed: made on demand. Linked: must be there, a real directory, and is never made."""

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The exact names from the workspace to the Workdir, at least one."""
        return tuple(self.text.encode("utf-8", "surrogateescape").split(b"/"))


@dataclass(frozen=True, slots=True)
class Location:
    """What a runtime path means, whether or not anything is there."""

    root: Root
    """Where the parts start; no part follows ``home``."""
    parts: tuple[bytes, ...]
    """The exact names below the root; empty for the root itself."""
    alias: bool
    """True if an alias led here; `virtual` gives the canonical path to show instead."""


def workdir_path(text: str | bytes) -> WorkdirPath:
    """Check the path of a Workdir, relative to the user's workspace.

    Stricter than other paths, because it is kept in configurations and databases and ends up in
    command lines: no backslash, no ``://``, no control character, no slash at either end, and not
    at or below `AGENTS`. ``projects/<uuid>`` in any case is managed and written in lower case.

    Raises `InvalidPath`.
    """
    exact = _exact(text)
    path = exact.decode("utf-8", "surrogateescape")
    reason = _workdir_fault(path)
    if reason is not None:
        raise InvalidPath(
            f"not a Workdir path: {printable(exact) or '(empty)'}: {reason}",
            fix="give it relative to the workspace, as projects/<uuid> or notes/2024",
            path=exact,
        )
    if _MANAGED.fullmatch(path):
        return WorkdirPath(path.lower(), "managed")
    return WorkdirPath(path, "linked")


def resolve(path: str | bytes, workdir: WorkdirPath | None) -> Location:
    """Return what the runtime path `path` means to a user whose current Workdir is `workdir`.

    Without a Workdir (None) the aliases of its parts mean nothing and are refused.

    Raises `InvalidPath` for what is no path or is outside the namespace, and `NotFound` for a name
    in `HOME` that is not one of its two.
    """
    parts = _split(path)
    if parts[: len(_HOME_NAMES)] == _HOME_NAMES:
        return _canonical(path, parts)
    for length in range(min(len(parts), _LONGEST_ALIAS), 0, -1):
        prefix, rest = parts[:length], parts[length:]
        if prefix in _SKILLS_ALIASES:
            return Location("skills", rest, alias=True)
        below = _WORKDIR_ALIASES.get(prefix)
        if below is not None and workdir is not None:
            return Location("user-data", workdir.parts + below + rest, alias=True)
    raise InvalidPath(
        f"outside the workspace: {printable(path)}",
        fix=f"give a path below {USER_DATA} or {SKILLS}",
        path=path,
    )


def virtual(location: Location) -> str:
    """Return the canonical runtime path of `location`, as text with surrogate escapes."""
    names = [part.decode("utf-8", "surrogateescape") for part in location.parts]
    return "/".join([_ROOT_PATHS[location.root], *names])


def scope_parts(path: str | bytes) -> tuple[bytes, ...]:
    """Return the exact names that the scope path `path` leads through; none for ``/`` itself.

    Raises `InvalidPath` for what is no path, and for a runtime path.
    """
    parts = _split(path)
    if parts[: len(_HOME_NAMES)] == _HOME_NAMES:
        raise InvalidPath(
            f"a runtime path, where one inside the Workdir belongs: {printable(path)}",
            fix="give it from the Workdir on: /notes.txt is the Workdir's notes.txt",
            path=path,
        )
    return parts


def _canonical(path: str | bytes, parts: tuple[bytes, ...]) -> Location:
    depth = min(len(parts), len(_HOME_NAMES) + 1)
    root = _ROOTS.get(parts[:depth])
    if root is None:
        raise NotFound(
            f"no such place: {printable(path)}",
            fix=f"{HOME} holds user-data and skills alone; give a path below one of them",
            path=path,
        )
    return Location(root, parts[depth:], alias=False)


def _exact(path: str | bytes) -> bytes:
    if isinstance(path, bytes):
        return path
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidPath(
            f"the path cannot be written as bytes: {printable(path)}",
            fix="give it as valid Unicode text",
            path=path,
        ) from None


def _split(path: str | bytes) -> tuple[bytes, ...]:
    exact = _exact(path)
    if not exact:
        raise InvalidPath("the path is empty", fix="give one that begins with /", path=path)
    if not exact.startswith(b"/"):
        raise InvalidPath(
            f"not an absolute path: {printable(path)}", fix="begin it with /", path=path
        )
    parts = tuple(exact[1:].split(b"/"))
    if parts[-1] == b"":  # of the root, or of the one trailing slash
        parts = parts[:-1]
    fault = None
    if b"\0" in exact:
        fault = "a NUL character in it"
    elif b"" in parts:
        fault = "an empty part in it"
    elif b"." in parts or b".." in parts:
        fault = "a . or .. in it"
    if fault is not None:
        raise InvalidPath(
            f"{fault}: {printable(path)}", fix="write the path out, name by name", path=path
        )
    return parts


def _workdir_fault(path: str) -> str | None:
    """Return the first rule that `path` breaks, or None."""
    parts = path.split("/")
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it begins with a slash"
    if "\\" in path:
        return "it holds a backslash"
    if "://" in path:
        return "it is a URL"
    if any(unicodedata.category(char) == "Cc" for char in path):
        return "it holds a control character"
    if "" in parts or "." in parts or ".." in parts:
        return "it holds an empty, . or .. part"
    if parts[0] == AGENTS:
        return f"{AGENTS}/ is reserved"
    return None
