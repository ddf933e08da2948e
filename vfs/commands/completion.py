"""`vfs completion`: the script that has a shell complete the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb

SHELLS = ("bash", "zsh", "fish")


@verb(
    "completion",
    examples=(
        'eval "$(vfs completion bash)"        # in ~/.bashrc',
        'eval "$(vfs completion zsh)"         # in ~/.zshrc',
        "vfs completion fish > ~/.config/fish/completions/vfs.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_settings
def command(settings: Settings, shell: str) -> None:
    """Print the completion script of a shell."""
    from vfs.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "vfs", "_VFS_COMPLETE").source()
    if settings.json:
        output.emit({"shell": shell, "script": script})
    else:
        output.write(script)
