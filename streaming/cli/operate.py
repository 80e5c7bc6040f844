"""``trimtab pause``, ``resume``, ``forget``, ``mode``, ``policy`` and ``control``: changes of a cluster's control, and what is set."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, cast

import click
import msgspec

from streaming.cli.control import Edit
from streaming.cli.options import example, until_option
from streaming.cli.output import format_option, render
from streaming.cli.request import (
    Request,
    change,
    cluster_options,
    overlay_text,
    overlay_tree,
    read_standings,
    with_request_options,
)
from streaming.contract.messages import ControlData
from streaming.process.exits import WrongUse
from streaming.settings import Settings
from streaming.settings.catalog import SettingsError, dotted
from streaming.settings.load import read_tree
from streaming.settings.sections import ClusterSection, Tree, leaves, merge


@click.command("pause", epilog=example('trimtab pause --cluster east-1 --until 2h --why "the sale"'))
@until_option("resume")
@with_request_options
def pause_command(request: Request, until: datetime | None) -> None:
    """Hold every action; the policies go on counting. Mode and settings stay as they are."""
    change(request, pause_edit(until))


@click.command("resume", epilog=example('trimtab resume --cluster east-1 --why "it is over"'))
@with_request_options
def resume_command(request: Request) -> None:
    """End a pause, and say that what made actions fail is mended. Mode and settings stay; `control delete` takes them back, too."""
    change(request, resume_edit(datetime.now(UTC)))


@click.command("forget", epilog=example('trimtab forget --cluster east-1 --why "dismantled"'))
@with_request_options
def forget_command(request: Request) -> None:
    """Forget what is remembered of a cluster: averages, hit counts, cooldowns, budgets, failures. Its pause, mode and settings stay.

    Name each with --cluster: --all is refused. A Kafka throttle that trimtab set stays known, but not that of a cluster that sent nothing for max_report_age_s: this frees all memory of it. Take such a throttle off first, because afterwards trimtab does not know that it set it.
    """
    if request.every:
        raise click.UsageError("name the clusters to forget: --cluster NAME (once or more)")
    change(request, forget_edit())


@click.command("mode", epilog=example('trimtab mode act --cluster east-1 --why "watched for a day"'))
@click.argument("mode", type=click.Choice(["act", "dry-run", "configured"]))
@click.option(
    "--approval",
    type=click.Choice(["required", "none", "configured"]),
    help="Whether unloads and splits wait for `trimtab approve` when it acts; unchanged if not given.",
)
@with_request_options
def mode_command(request: Request, mode: str, approval: str | None) -> None:
    """Let a cluster act, or only show what it would do; `configured` goes back to controller.mode, `--approval configured` to controller.approval."""
    change(request, mode_edit(mode, approval))


@click.group("policy")
def policy_command() -> None:
    """Change decision settings while the controller runs, or see what is changed."""


@policy_command.command(
    "set",
    short_help="Put settings over those of the controller's file.",
    epilog=example('trimtab policy set --cluster east-1 --why "calmer" pulsar.avg_shedder.low_hit_count=12'),
)
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=VALUE...")
@with_request_options
def set_command(request: Request, assignments: tuple[str, ...]) -> None:
    """Put settings over those of the controller's file, with keys as in trimtab.toml: pulsar.avg_shedder.low_threshold_points=10."""
    change(request, settings_edit(assignments))


@policy_command.command(
    "unset",
    short_help="Take settings, or whole sections, out of the overlay.",
    epilog=example(
        'trimtab policy unset --cluster east-1 --why "as before" pulsar.avg_shedder.low_hit_count'
    ),
)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@with_request_options
def unset_command(request: Request, keys: tuple[str, ...]) -> None:
    """Take settings, or whole sections, out of the overlay: those of the controller's file hold again."""
    change(request, unset_edit(keys))


@click.group("control")
def control_command() -> None:
    """List what operators have set, and go back to what is configured."""


@control_command.command(
    "list",
    short_help="Show what operators have set, who and why.",
    epilog=example(
        "trimtab control list\n  trimtab policy show --cluster east-1\n  trimtab maintenance list --cluster east-1"
    ),
)
@cluster_options
@format_option("JSON and YAML are a list with one object per cluster.")
def list_command(settings: Settings, clusters: tuple[str, ...], form: str, *, every: bool) -> None:
    """Show what operators have set, who and why, with what is under maintenance or drained, beside what the controller is configured with.

    Without --cluster or --all: every cluster that is not as configured. The same as `policy show`
    and `maintenance list`.
    """
    if clusters and every:
        raise click.UsageError("give either --cluster NAME (once or more) or --all")
    found, source = read_standings(Request(settings=settings, clusters=clusters, every=every))
    if not clusters and not every:
        found = {name: each for name, each in found.items() if each.refused or each.overlay.changes_anything}
    if form != "table":
        click.echo(render([overlay_tree(*each, source) for each in found.items()], form), nl=False)
        return
    if not found:
        click.echo("every cluster is as configured")
    for cluster, each in found.items():
        click.echo(overlay_text(cluster, each, source), nl=False)


policy_command.add_command(list_command, "show")


@control_command.command(
    "delete",
    short_help="Go back to what is configured.",
    epilog=example('trimtab control delete --cluster east-1 --why "as configured again"'),
)
@with_request_options
def delete_command(request: Request) -> None:
    """Go back to what is configured: the one way to take back pause, mode, approval, settings, maintenance and drains at once.

    `resume` only ends a pause or a hold. A cluster that is as configured is no longer listed.
    """
    change(request, configured_edit())


def pause_edit(until: datetime | None = None) -> Edit:
    """Hold everything, until then or until a person resumes; mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, paused=True, until=until)


def resume_edit(at: datetime) -> Edit:
    """End a pause, and say that what made actions fail up to then is mended; mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, paused=False, until=None, resumed_at=at)


def forget_edit() -> Edit:
    """Empty the cluster's memory; pause, mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, forget=True)


def configured_edit() -> Edit:
    """End a pause, and let mode and settings be the file's."""
    return lambda _data: ControlData()


def mode_edit(mode: str, approval: str | None = None) -> Edit:
    """Set the mode: ``act``, ``dry-run`` or ``configured`` (that of the settings file). The same for ``approval``; None keeps it."""
    wanted: Any = None if mode == "configured" else mode
    asked: Any = None if approval == "configured" else approval
    return lambda data: msgspec.structs.replace(
        data, mode=wanted, approval=data.approval if approval is None else asked
    )


def settings_edit(assignments: Sequence[str]) -> Edit:
    """Put each ``key=value``, a line of ``trimtab.toml``, over the settings; raises ``WrongUse``."""
    tree: Tree = {}
    for assignment in assignments:
        tree = merge(tree, _assignment(assignment))
    for path, _ in leaves(tree):
        _require_decision(path)
    _require_readable(tree)
    return lambda data: msgspec.structs.replace(data, settings=merge(data.settings, tree))


def _require_readable(tree: Tree) -> None:
    """Whether the values of a section fit together is checked later, with those that are in force."""
    try:
        read_tree(tree, ClusterSection)
    except SettingsError as error:
        complaints = [str(each) for each in error.problems if not each.is_about_section]
        if complaints:
            raise WrongUse("; ".join(complaints)) from error


_COMMANDS = {
    "mode": "`trimtab mode act`, or dry-run; `trimtab mode configured` takes it back",
    "approval": "`trimtab mode MODE --approval required`, or none; `--approval configured` takes it back",
}
"""By its name below ``controller``, the command that changes a setting which is no decision setting."""


def _require_decision(path: Sequence[str]) -> None:
    """Raises ``WrongUse`` for a setting that no overlay has, naming what changes it."""
    section, *rest = path
    if section == "controller" and rest and rest[0] in _COMMANDS:
        raise WrongUse(f"{dotted(path)} is no decision setting: it is changed by {_COMMANDS[rest[0]]}")
    if section == "clusters":
        raise WrongUse(
            f"{dotted(path)}: name the cluster with --cluster, and the setting as {dotted(rest[1:]) or 'pulsar.… or kafka.…'}"
        )
    if section in {each.name for each in fields(Settings)} - {each.name for each in fields(ClusterSection)}:
        raise WrongUse(
            f"{dotted(path)} is no decision setting: it is read once, at a start, so change it in the settings file and start "
            "the program again"
        )


def _assignment(text: str) -> Tree:
    """Parse a line of TOML; a string may lack its quotes, because a shell removes them."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise WrongUse(f"{text!r}: expected KEY=VALUE, e.g. pulsar.avg_shedder.low_threshold_points=10")
    for line in (text, f"{key} = {msgspec.json.encode(value.strip()).decode()}"):
        try:
            return tomllib.loads(line)
        except tomllib.TOMLDecodeError as error:
            problem = error
    raise WrongUse(f"{text!r} is no line of TOML: {problem}")


def unset_edit(keys: Sequence[str]) -> Edit:
    """Take keys, or whole sections, out of the overlay; they fall back to the file's. Raises ``WrongUse``."""
    paths = [_key(key) for key in keys]
    for path in paths:
        _require_decision(path)

    def edit(data: ControlData) -> ControlData:
        tree: Mapping[str, Any] = data.settings
        for path in paths:
            tree = _remove_key(tree, path, path)
        return msgspec.structs.replace(data, settings=dict(tree))

    return edit


def _unknown_setting(path: Sequence[str]) -> str | None:
    """What is said of a path that no setting has."""
    node: object = None
    for name in reversed(path):
        node = {name: node}
    try:
        read_tree(cast("Tree", node), ClusterSection)
    except SettingsError as error:
        return next((str(each) for each in error.problems if each.complaint.startswith("unknown")), None)
    return None


def _key(text: str) -> tuple[str, ...]:
    """The path a dotted key names, quotes as in TOML."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError as error:
        raise WrongUse(f"{text!r} is no key of trimtab.toml: {error}") from error
    path = []
    while isinstance(node, dict):
        ((name, node),) = node.items()
        path.append(name)
    return tuple(path)


def _remove_key(tree: Mapping[str, Any], path: Sequence[str], whole: Sequence[str]) -> Tree:
    name, *rest = path
    below = tree.get(name) if isinstance(tree, Mapping) else None
    if below is None or (rest and not isinstance(below, Mapping)):
        problem = _unknown_setting(whole) or f"{dotted(whole)} is not in the overlay"
        raise WrongUse(f"{problem}; `trimtab control list` says what is in the overlay")
    kept = _remove_key(below, rest, whole) if rest else {}
    others = {key: value for key, value in tree.items() if key != name}
    return {**others, name: kept} if kept else others
