"""What becomes of virtual paths that the database holds: pure functions over parsed JSON.

==========================================  =================================================
old                                         new
==========================================  =================================================
``/home/gem/user-data/workspace[/x]``       ``/home/gem/user-data[/x]``
``/home/gem/user-data/uploads[/x]``         ``/home/gem/user-data/<workdir>/uploads[/x]``
``/home/gem/user-data/outputs[/x]``         ``/home/gem/user-data/<workdir>/outputs[/x]``
anything else                               the same
==========================================  =================================================

Mapping twice is wrong (``workspace/uploads/x`` becomes ``uploads/x``, and that would be mapped
again), so a row is rewritten only in the transaction that gives it its project. What needs no
change comes back as the very object that was given; nothing that is given is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vfs.namespace import USER_DATA

ATTACHMENT_KEYS: Final = (
    "file_id",
    "file_name",
    "file_type",
    "file_size",
    "status",
    "uploaded_at",
    "path",
    "original_path",
    "request_id",
)
"""What is kept of an attachment; the rest was host paths and copies of what the files hold."""

ARTIFACTS_TOOL: Final = "present_artifacts"
"""The `tool_name` of the calls whose input names files."""

_WORKSPACE: Final = f"{USER_DATA}/workspace"
_OF_A_THREAD: Final = (f"{USER_DATA}/uploads", f"{USER_DATA}/outputs")


def map_path(path: str, workdir_path: str) -> str:
    """The new form of a virtual path, for a conversation in the Workdir ``projects/<uuid>``."""
    if _at_or_below(path, _WORKSPACE):
        return USER_DATA + path[len(_WORKSPACE) :]
    if any(_at_or_below(path, top) for top in _OF_A_THREAD):
        return f"{USER_DATA}/{workdir_path}{path[len(USER_DATA) :]}"
    return path


def rewrite_metadata(metadata: Any, workdir_path: str) -> Any:
    """The new `extra_metadata` of a conversation: its attachments reduced, their paths mapped.

    Whatever has not the form of ``{"attachments": [{...}]}`` stays as it is.
    """
    return _with_items(metadata, "attachments", lambda item: _attachment(item, workdir_path))


def rewrite_tool_input(tool_input: Any, workdir_path: str) -> Any:
    """The new `tool_input` of a call of `ARTIFACTS_TOOL`: ``{"filepaths": [...]}`` mapped."""
    return _with_items(tool_input, "filepaths", lambda item: _mapped(item, workdir_path))


def _with_items(value: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """`value` with each item of the list at `key` changed; `value` itself if none differs."""
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        return value
    old = value[key]
    new = [change(item) for item in old]
    if all(one is other for one, other in zip(old, new, strict=True)):
        return value
    return {**value, key: new}


def _attachment(item: Any, workdir_path: str) -> Any:
    if not isinstance(item, dict):
        return item
    new = {key: value for key, value in item.items() if key in ATTACHMENT_KEYS}
    for key in ("path", "original_path"):
        if key in new:
            new[key] = _mapped(new[key], workdir_path)
    return item if new == item else new


def _mapped(path: Any, workdir_path: str) -> Any:
    """The path mapped; the same object if nothing changes or it is no text."""
    if not isinstance(path, str):
        return path
    return map_path(path, workdir_path)


def _at_or_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
