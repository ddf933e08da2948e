"""`vfs skills`: the store of skills, and what each user is shown of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import (
    FINDINGS,
    Settings,
    json_option,
    pass_settings,
    uid_argument,
    verb,
)
from vfs.errors import NotFound
from vfs.printable import printable
from vfs.verbs import HostPath

if TYPE_CHECKING:
    from vfs.skills import Skill

HEADER = ("SKILL", "FILES", "BYTES", "DESCRIPTION")


@click.group("skills", no_args_is_help=False)
@json_option
def command() -> None:
    """Keep skills in the store, and project them for users."""


@verb(
    "add",
    examples=(
        "vfs skills add ./csv-report",
        "vfs skills add ./build/out --slug csv-report --replace",
    ),
)
@click.argument("folder", type=HostPath())
@click.option("--slug", help="The skill's name: words of a-z, 0-9 and hyphens. [default: FOLDER's]")
@click.option("--replace", is_flag=True, help="Put it in the place of the skill of that name.")
@pass_settings
def add(settings: Settings, folder: bytes, slug: str | None, replace: bool) -> None:
    """Copy a folder of the host into the store, whole or not at all.

    Links and special files in it are refused. Users see it after the next `vfs skills project`.
    """
    from vfs.skills import SkillStore

    with settings.open() as storage:
        skill = SkillStore(storage).add(folder, slug, replace=replace)
    if settings.json:
        output.emit(_document(skill))
    else:
        files, size = output.counted(skill.files, "file"), output.counted(skill.size, "byte")
        output.say(f"{skill.slug} is in the store: {files}, {size}")


@verb("list", examples=("vfs skills list", "vfs skills list --json | jq -r '.skills[].slug'"))
@pass_settings
def list_(settings: Settings) -> None:
    """List the skills in the store."""
    from vfs.skills import SkillStore

    with settings.open() as storage:
        skills = SkillStore(storage).list()
    if settings.json:
        output.emit({"skills": [_document(skill) for skill in skills]})
    elif skills:
        rows = [
            (s.slug, str(s.files), str(s.size), printable(s.description or "-")) for s in skills
        ]
        output.table([HEADER, *rows], right=frozenset({1, 2}))


@verb("remove", examples=("vfs skills remove csv-report",))
@click.argument("slug")
@pass_settings
def remove(settings: Settings, slug: str) -> None:
    """Remove a skill from the store.

    Users see it until their next `vfs skills project`.
    """
    from vfs.skills import SkillStore

    with settings.open() as storage:
        SkillStore(storage).remove(slug)
    if settings.json:
        output.emit({"removed": slug})


@verb(
    "project",
    examples=(
        "vfs skills project alice                     # all skills of the store",
        "vfs skills project alice csv-report pdf      # these, and no others",
    ),
)
@uid_argument
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@click.option("--by-content", is_flag=True, help="Compare every byte, not only sizes and times.")
@click.pass_context
@pass_settings
def project(
    settings: Settings, ctx: click.Context, uid: str, slugs: tuple[str, ...], by_content: bool
) -> None:
    """Bring the skills that a user sees up to date.

    They become those of the store, or those of them that are named.

    What is unchanged is not touched. A skill that cannot be shown is refused by name, the others
    are brought up to date all the same; the exit status is 1 then.
    """
    from vfs.naming import skill_slug
    from vfs.skills import SkillStore, project

    with settings.open() as storage:
        # A slug that is mistyped must not cost the user the skills that were meant.
        unknown = set(map(skill_slug, slugs)) - {skill.slug for skill in SkillStore(storage).list()}
        if unknown:
            raise NotFound(
                f"there is no skill {printable(min(unknown))} in the store; nothing was changed",
                fix="`vfs skills list` says what there is",
            )
        done = project(storage, uid, slugs or None, by_content=by_content)
    if settings.json:
        output.emit({"uid": uid, **asdict(done)})
    else:
        for word, named in (
            ("added", done.added),
            ("updated", done.updated),
            ("removed", done.removed),
        ):
            for slug in named:
                output.say(f"{word} {slug}")
        for slug, reason in done.refused.items():
            output.say(f"refused {slug}: {reason}")
        output.say(f"{len(done.unchanged)} unchanged")
    if done.refused:
        ctx.exit(FINDINGS)


@verb("verify", examples=("vfs skills verify alice", "vfs skills verify alice csv-report"))
@uid_argument
@click.argument("slugs", nargs=-1, metavar="[SLUG]...")
@click.pass_context
@pass_settings
def verify(settings: Settings, ctx: click.Context, uid: str, slugs: tuple[str, ...]) -> None:
    """Compare the skills that a user sees with the store.

    Every byte is compared, and nothing changed. Name the slugs that were projected, if not all.
    Exit status 0 when nothing differs, else 1.
    """
    from vfs.skills import verify

    with settings.open() as storage:
        found = verify(storage, uid, slugs or None)
    if settings.json:
        output.emit({"uid": uid, "differences": [asdict(difference) for difference in found]})
    else:
        for difference in found:
            output.say(f"{difference.kind} {difference.slug}: {difference.detail}")
    if found:
        ctx.exit(FINDINGS)


def _document(skill: Skill) -> dict[str, object]:
    return {
        "slug": skill.slug,
        "description": None if skill.description is None else printable(skill.description),
        "files": skill.files,
        "size": skill.size,
    }


for subcommand in (add, list_, remove, project, verify):
    command.add_command(subcommand)
