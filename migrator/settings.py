"""The system settings of Yuxi v0.7.1, ``config/base.toml``: what of them the new platform knows.

The file holds only keys that differ from their default. Known keys go to the database where it has
none yet; unknown ones, and values that JSON cannot carry, stay in the report. A file that cannot be
read as TOML is left, and stops nothing.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from migrator.findings import Finding
from migrator.layouts.base import shown
from migrator.units import Path
from vfs.beneath import Directory, translated
from vfs.errors import NotFound, VfsError
from vfs.printable import printable

KNOWN: Final = frozenset(
    (
        "default_agent_id",
        "default_model",
        "embed_model",
        "content_guard_llm_model",
        "enable_content_guard",
        "enable_content_guard_llm",
        "enable_reranker",
        "enable_web_search",
        "fast_model",
        "model_dir",
        "reranker",
        "sandbox_exec_timeout_seconds",
        "sandbox_keepalive_interval_seconds",
        "sandbox_max_output_bytes",
        "sandbox_provider",
        "sandbox_provisioner_url",
        "sandbox_virtual_path_prefix",
        "save_dir",
    )
)
"""The settings of Yuxi v0.7.1 (https://github.com/xerrors/Yuxi, its class of the configuration)."""

SIZE_MAX: Final = 1 << 20
"""Bytes of the file that are read: thousands of times what the known keys take."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says."""

    known: dict[str, Any] = field(default_factory=dict)
    """Ready for JSON."""
    unknown: dict[str, Any] = field(default_factory=dict)
    """Ready for JSON: what it cannot carry as the text that Python has for it."""
    findings: tuple[Finding, ...] = ()


def read(source: Directory, path: Path, also_known: Collection[str] = ()) -> Settings:
    """Reads the settings at `path`; `also_known` are keys that the database has a field for."""
    try:
        text = _text(source, path)
        document = tomllib.loads(text)
    except NotFound:
        return Settings()
    except VfsError as exc:
        return _left(path, exc.message)
    except _Unreadable as exc:
        return _left(path, str(exc))
    except ValueError as exc:
        # TOMLDecodeError, or what int() says of a number with thousands of digits.
        return _left(path, f"it is no TOML: {exc}")
    except RecursionError:
        return _left(path, "its values are nested too deeply")
    return _sorted(path, document, KNOWN.union(also_known))


class _Unreadable(Exception):
    pass


def _text(source: Directory, path: Path) -> str:
    fd = source.open_file(path)
    with translated("read", path), open(fd, "rb") as file:
        data = file.read(SIZE_MAX + 1)
    if len(data) > SIZE_MAX:
        raise _Unreadable(f"it is larger than {SIZE_MAX} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Unreadable("it is not UTF-8") from None


def _sorted(path: Path, document: dict[str, Any], names: Collection[str]) -> Settings:
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    findings = []
    for key, value in document.items():
        if key in names and _is_json(value):
            known[key] = value
            continue
        unknown[key] = value if _is_json(value) else repr(value)
        what = "no setting of this name is known"
        if key in names:
            what = "a value of this kind has no place in the database"
        findings.append(
            Finding(
                "setting_unknown",
                "warning",
                printable(key),
                f"{what}: kept in the report alone",
                "set it by hand if the new version has a use for it",
            )
        )
    return Settings(known, unknown, tuple(findings))


def _is_json(value: Any) -> bool:
    """Whether JSON, as databases take it, can carry it: no date or time, no infinity, no NUL."""
    if isinstance(value, dict):
        return all(_is_json(key) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return "\0" not in value
    return isinstance(value, int)


def _left(path: Path, why: str) -> Settings:
    return Settings(
        findings=(
            Finding(
                "settings_unreadable",
                "warning",
                shown(path),
                f"no setting is taken over: {why}",
                "mend the file and run again, or set them in the new version",
            ),
        )
    )
