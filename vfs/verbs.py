"""What the commands are made of: verbs in modules of their own, imported when they are used."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _HostPathType = click.ParamType[bytes]
else:
    _HostPathType = click.ParamType  # older releases of click do not subscript it


class Verbs(click.Group):
    """The group that imports a verb's module when the verb is used."""

    def __init__(
        self, *args: Any, package: str, sections: Mapping[str, Sequence[str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.package = package
        """Where the verbs' modules are; each has its click command as `command`."""
        self.sections = sections
        """The verbs, in the order of the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb's name."""
        return [name for names in self.sections.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now."""
        if not any(cmd_name in names for names in self.sections.values()):
            return None
        command: click.Command = importlib.import_module(f"{self.package}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs by section."""
        for section, names in self.sections.items():
            rows = [
                (name, command.get_short_help_str(70))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


class Verb(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        """Command lines that can be typed as they are; `#` begins a remark."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        if self.examples:
            formatter.write("\nExamples:\n")
            for line in self.examples:
                formatter.write(f"  {line}\n")


class HostPath(_HostPathType):
    """A path of the host, as exact bytes."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> bytes:
        """Takes any text that the system can have given."""
        if isinstance(value, bytes):
            return value
        try:
            return os.fsencode(value)
        except UnicodeEncodeError:
            self.fail("it cannot be written as bytes.", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leaves it to the shell."""
        return [CompletionItem(incomplete, type="file")]
