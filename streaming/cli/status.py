"""``trimtab status``: what is in force for each cluster, and why nothing happens, from the newest summary of its rounds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import click
import msgspec

from policies.wording import counted, time_text
from state.outputs import (
    ApprovalSummary,
    ControlInForce,
    Finding,
    InFlightRow,
    OtherBalancers,
    RoundSummary,
    Section,
    UsageSummary,
)
from state.summary import SHOWN_ROWS, join_names
from streaming.cli.brokers import broker_lines, list_brokers
from streaming.cli.cluster_status import ClusterStatus, look_up
from streaming.cli.options import example, settings_options
from streaming.cli.output import age_text, format_option, render, table_lines, text_of
from streaming.cli.published import Newest
from streaming.cli.summaries import (
    all_names,
    examined_text,
    maintenance_lines,
    more_line,
    outcome_text,
    throttle_facts,
)
from streaming.process.exits import Refused
from streaming.process.stop_signals import watched
from streaming.settings import Settings
from streaming.settings.reference import default_text, toml_value
from streaming.systems import is_outage

_WATCH_S = 5.0


@click.command("status", epilog=example("trimtab status --cluster east-1 --watch"))
@settings_options
@click.option(
    "--cluster", "clusters", multiple=True, metavar="NAME", help="Only this cluster. May be repeated."
)
@click.option(
    "--brokers",
    "shows_brokers",
    is_flag=True,
    help="Show who carries what instead: usage, bundles and traffic of the 100 heaviest brokers, and why one gives or receives no bundle.",
)
@click.option("--watch", is_flag=True, help="Show it again every few seconds; Ctrl-C or SIGTERM ends it.")
@format_option("JSON and YAML are a list with one object per cluster.")
def status_command(
    settings: Settings, clusters: tuple[str, ...], form: str, *, watch: bool, shows_brokers: bool
) -> None:
    """Show what is in force for each cluster as its controller applied it, and why nothing happens."""
    newest = Newest(settings)
    text_of_, tree_of = (brokers_text, brokers_tree) if shows_brokers else (status_text, status_tree)
    with watched() if watch else nullcontext():
        while True:
            try:
                statuses = list(look_up(settings, set(clusters), newest))
            except Refused as error:
                if not watch or not is_outage(error):
                    raise
                click.echo(f"{error.message}\nIt is tried again every {_WATCH_S:g} s.", err=True)
                time.sleep(_WATCH_S)
                continue
            if watch:
                click.clear()
            if form == "table":
                click.echo("\n".join(map(text_of_, statuses)), nl=False)
            else:
                click.echo(render(list(map(tree_of, statuses)), form), nl=False)
            if not watch:
                return
            time.sleep(_WATCH_S)


_FIELDS = (
    "cluster system controller epoch runs beat standbys round end age_s is_late rounds_behind outcome reason mode paused policy settings "
    "control waiting failing_since splits_failing_since brokers_reporting_count brokers_missing brokers_failed usage "
    "other_balancers nearest held actions in_flight findings throttle shadow maintenance approval"
)
"""What a program gets of a cluster: fields of its summary, and those of ``status_tree``."""


def status_tree(status: ClusterStatus) -> dict[str, Any]:
    """For a program."""
    data, leader = status.event.data, status.leader
    beat = None
    if leader is not None:
        beat = {
            "controller": leader.beat.name,
            "instance": leader.beat.instance,
            "epoch": leader.beat.epoch,
            "batch": leader.beat.batch,
            "beat_age_s": leader.age_s,
            "session_s": leader.beat.session_s,
            "version": leader.beat.version,
            "has_left": leader.beat.is_leaving,
            "problem": leader.beat.problem,
        }
    standbys = [
        {
            "instance": each.beat.instance,
            "version": each.beat.version,
            "beat_age_s": each.age_s,
            "problem": each.beat.problem,
        }
        for each in status.standbys
    ]
    beside: dict[str, Any] = {
        "controller": status.controller,
        "epoch": status.epoch,
        "runs": status.runs,
        "beat": beat,
        "standbys": standbys,
        "age_s": round(status.age_s, 3),
        "is_late": status.is_late,
        "rounds_behind": status.rounds_behind,
        "settings": data.settings_by_name(),
        "waiting": status.waiting,
        "nearest": status.nearest,
        "held": status.held,
        "findings": data.findings.heaviest,
    }
    fields = {name: beside[name] if name in beside else getattr(data, name) for name in _FIELDS.split()}
    tree: dict[str, Any] = msgspec.to_builtins(fields)
    return tree


_BROKERS_FIELDS = (
    "cluster system round end age_s is_late outcome reason mode paused failing_since brokers_reporting_count "
    "brokers_missing_count usage"
)


def brokers_tree(status: ClusterStatus) -> dict[str, Any]:
    """Who carries what, for a program."""
    whole = status_tree(status) | {"brokers_missing_count": status.event.data.brokers_missing_count}
    return {name: whole[name] for name in _BROKERS_FIELDS.split()} | list_brokers(status.event.data)


def brokers_text(status: ClusterStatus) -> str:
    """Who carries what, for a person, below what holds the whole round."""
    data = status.event.data
    counted_elsewhere = (f"the table is as measured; {line}" for line in _shadow(data))
    above = [*_lateness(status), outcome_text(data), *_whole_usage(data), *counted_elsewhere]
    return text_of([_head(status), *(f"  {line}" for line in above), *broker_lines(data)])


def status_text(status: ClusterStatus) -> str:
    """For a person: what is in force, what happened last, and why nothing did."""
    data = status.event.data
    standbys = [
        f"{each.beat.instance}, version {each.beat.version}, "
        + (f"COULD NOT LEAD: {each.beat.problem}" if each.beat.problem else "could take over")
        for each in status.standbys
    ]
    unloads = "throttle decisions" if data.system == "kafka" else "unloads"
    failing = {unloads: data.failing_since, "splits": data.splits_failing_since}
    parts: list[tuple[str, Iterable[str]]] = [
        ("", _lateness(status)),
        ("controller", [_controller(status)]),
        ("standby", standbys),
        ("control", [_control(data.control)]),
        ("waiting", [status.waiting] if status.waiting else []),
        ("policy", [data.policy]),
        ("mode", _mode(data)),
        ("settings", _settings(data)),
        ("brokers", [_brokers(data)]),
        ("balancers", _describe_other_balancers(data.other_balancers)),
        ("round", [outcome_text(data)]),
        ("nearest", [f"{examined_text(row)}: {row.detail}" for row in status.nearest]),
        ("in flight", _in_flight(data.in_flight)),
        ("shadow", _shadow(data)),
        ("approval", _approval(data.approval)),
        ("maintenance", maintenance_lines(data)),
        *(
            (
                "failing",
                [
                    f"{kind} are held since {time_text(since)}, because too many failed, or trimtab itself did: see `trimtab resume`"
                ],
            )
            for kind, since in failing.items()
            if since is not None
        ),
        ("findings", _findings(data.findings)),
        *throttle_facts(data),
    ]
    rows = [("" if number else name, line) for name, lines in parts for number, line in enumerate(lines)]
    return text_of([_head(status), *table_lines(rows)])


def _in_flight(rows: Sequence[InFlightRow]) -> Iterator[str]:
    yield from (f"{row.kind} {row.target} until {time_text(row.expires_at)} ({row.id})" for row in rows)
    if len(rows) >= SHOWN_ROWS:
        yield f"and perhaps more: a summary names {SHOWN_ROWS}"


def _findings(found: Section[Finding]) -> Iterator[str]:
    yield from (f"{each.kind} {each.subject}: {each.advice}" for each in found.heaviest)
    yield from more_line(found.count, found.heaviest)


def _head(status: ClusterStatus) -> str:
    data = status.event.data
    mode = "acts" if data.mode == "act" else "dry-run"
    if data.paused:
        until = (
            ""
            if data.control is None or data.control.until is None
            else f" until {time_text(data.control.until)}"
        )
        mode = f"{mode}, PAUSED{until}"
    return f"{data.cluster} ({data.system}): {mode}, round {data.round} ended {age_text(status.age_s)}"


def _controller(status: ClusterStatus) -> str:
    known = f"{status.controller}, epoch {'unknown' if status.epoch is None else status.epoch}"
    if status.runs is None:
        return f"{known}; whether it runs is not known"
    if status.leader is None:
        return f"{known}, DOES NOT RUN: no beat in the last hour"
    beat = status.leader.beat
    if status.epoch is not None and beat.epoch > status.epoch:  # started anew after the newest round
        known = f"{status.controller}, epoch {beat.epoch} (no round of it yet)"
    if not status.runs:
        last = "it ended" if beat.is_leaving else "its last beat was"
        return f"{known}, DOES NOT RUN: {last} {age_text(status.leader.age_s)}, from {beat.instance}"
    fault = f", BUT DECIDES NOTHING NOW: {beat.problem}" if beat.problem else ""
    return (
        f"{known}, runs as {beat.instance}, batch {'none yet' if beat.batch is None else beat.batch}{fault}"
    )


def _lateness(status: ClusterStatus) -> Iterator[str]:
    fault = status.leader.beat.problem if status.leader is not None and status.runs else ""
    if fault and status.is_late:
        yield f"no newer round: {fault}; the rest is as of that round"
    elif status.rounds_behind is not None:
        behind = f"catching up ({counted(status.rounds_behind, 'round')} behind)"
        yield f"{behind}; if it stays so, see `trimtab rejected tail --from earliest --no-follow`; the rest is as of that round"
    elif status.is_late:
        why = {
            True: "no reports come: see the collector",
            False: "its controller does not run",
            None: "no reports come (see the collector), or no controller runs",
        }[status.runs]
        if status.runs and status.reports_come is None:
            why = "no reports come (see the collector), or its controller is catching up"
        yield f"no newer round: {why}; the rest is as of that round"


def _mode(data: RoundSummary) -> Iterator[str]:
    if data.configured is not None and data.configured.mode != data.mode:
        yield f"{data.mode} by the control event; {data.configured.mode} is configured"


def _settings(data: RoundSummary) -> Iterator[str]:
    """What differs from the defaults, and what the control event sets beside what is configured."""
    set_now, configured = data.overlay_by_name(), data.configured_by_name()
    for name, value in sorted({**set_now, **data.settings_by_name()}.items()):
        beside = ""
        if name in set_now and configured is not None:
            usual = toml_value(configured[name]) if name in configured else default_text(name)
            beside = f"  # by the control event; configured: {usual}"
        yield f"{name} = {toml_value(value)}{beside}"


def _control(control: ControlInForce | None) -> str:
    if control is None:
        return "as configured, no control event"
    problem = f"; its settings are not in force: {control.problem}" if control.problem else ""
    return f"{control.who or 'somebody'} at {time_text(control.time)}: {control.why or 'no reason given'}{problem}"


def _brokers(data: RoundSummary) -> str:
    found = [f"{data.brokers_reporting_count} reporting"]
    if data.brokers_missing:
        found.append(f"missing {all_names(data.brokers_missing, data.brokers_missing_count)}")
    found += [f"{name} failed ({why})" for name, why in data.brokers_failed.items()]
    return ", ".join([*found, *_whole_usage(data)])


def _whole_usage(data: RoundSummary) -> Iterator[str]:
    """Usage of the brokers, and which of them it leaves out."""
    apart = data.brokers_excluded
    if data.usage is not None:
        without = f" without {join_names(apart)}, excluded from balancing" if apart else ""
        yield f"{_usage(data.usage)}{without}"
    elif apart:
        yield f"{join_names(apart)} excluded from balancing"


def _usage(usage: UsageSummary) -> str:
    return f"usage mean {usage.mean_points:.1f}, max {usage.max_points:.1f} points"


def _describe_other_balancers(others: OtherBalancers | None) -> Iterator[str]:
    if others is None:
        return
    for what, brokers in (
        ("Pulsar's own shedding is on", others.shedding_brokers),
        ("Pulsar's own splitting is on", others.splitting_brokers),
        ("whether Pulsar balances is not known", others.unknown_brokers),
    ):
        if brokers:
            yield f"{what} at {', '.join(brokers)}"


def _shadow(data: RoundSummary) -> Iterator[str]:
    if data.shadow is not None:
        moved = f"counted where the dry-run moved them: {counted(data.shadow.count, 'bundle')}"
        yield f"{moved}; {_usage(data.shadow.usage)}"


def _approval(found: ApprovalSummary | None) -> Iterator[str]:
    if found is not None:
        waiting = (
            f"{counted(found.open_count, 'proposal')} open, see `trimtab approve`"
            if found.open_count
            else "nothing waits"
        )
        yield f"required for unloads and splits: {waiting}"
        yield from (
            f"{row.kind} {row.bundle} until {time_text(row.expires_at)} ({row.id})" for row in found.open
        )
        yield from more_line(found.open_count, found.open)
