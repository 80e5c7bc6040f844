"""What is in force for a cluster, and why nothing happens, from the newest summary of its rounds. Pure: no topic, no clock."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from state.outputs import (
    ApprovalSummary,
    ControlInForce,
    ExaminedRow,
    Finding,
    InFlightRow,
    OtherBalancers,
    ShadowSummary,
    ThrottleSummary,
    UpkeepSummary,
    UsageSummary,
)
from streaming.operators.beats import Running, Standby
from streaming.operators.round_events import Round
from streaming.operators.round_text import examined_text
from streaming.operators.text import counts_text, table_lines, value_text
from streaming.operators.upkeep import upkeep_lines
from streaming.settings.reference import toml_value

NEAREST_COUNT = 5
"""Pairs or brokers shown of those that did not fire; the heaviest come first."""
LATE_AFTER_ROUNDS = 3
"""A summary older than this many rounds is late."""
_SHOWN_IN_SECONDS_S = 120


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one cluster."""

    cluster: str
    system: str
    controller: str
    """Name of the controller that closed the round."""
    epoch: int | None
    runs: bool | None
    """Whether that controller runs, by its beats; None where they cannot be read."""
    beat: Running | None
    """Its newest beat within the last hour."""
    standbys: list[Standby]
    """The processes that stand by for it."""
    round: int
    end: str
    age_s: float
    """Seconds since the round's end."""
    is_late: bool
    """Whether there should be a newer round."""
    outcome: str
    reason: str
    mode: str
    paused: bool
    policy: str
    settings: dict[str, Any]
    """Settings in force that differ from the defaults, by their full names."""
    control: ControlInForce | None
    waiting: str | None
    """The newest control event if the round does not obey it yet, or why it was refused; None if the round obeys it or there is none."""
    failing_since: str | None
    splits_failing_since: str | None
    brokers_reporting_count: int
    brokers_missing: list[str]
    brokers_failed: dict[str, str]
    usage: UsageSummary | None
    other_balancers: OtherBalancers | None
    """Other balancers of the cluster; None if no collector looked for them."""
    nearest: list[ExaminedRow]
    """What the policy looked at and did not act on."""
    held: dict[str, int]
    """How many bundles of the brokers that fired did not move, by reason."""
    actions: list[str]
    in_flight: list[InFlightRow]
    findings: list[Finding]
    throttle: ThrottleSummary | None
    shadow: ShadowSummary | None
    """What a dry-run counts as moved."""
    upkeep: UpkeepSummary | None
    """What is under maintenance and drained."""
    approval: ApprovalSummary | None
    """What waits for approval."""


def status_of(
    event: Round,
    *,
    epoch: int | None,
    waiting: str | None,
    beats: Mapping[str, Running] | None,
    standbys: Mapping[str, Sequence[Standby]] = MappingProxyType({}),
    now_ms: int,
) -> ClusterStatus:
    """From the newest summary of a cluster, and the newest beats by controller; ``beats`` is None if they cannot be read."""
    data, controller = event.data, event.source.rpartition("/")[2]
    beat = None if beats is None else beats.get(controller)
    start_s, end_s = (datetime.fromisoformat(each).timestamp() for each in (data.start, data.end))
    age_s = now_ms / 1000 - end_s
    return ClusterStatus(
        cluster=data.cluster,
        system=data.system,
        controller=controller,
        epoch=epoch,
        runs=None if beats is None else beat is not None and beat.runs,
        beat=beat,
        standbys=list(standbys.get(controller, ())),
        round=data.round,
        end=data.end,
        age_s=round(age_s, 3),
        is_late=age_s > LATE_AFTER_ROUNDS * (end_s - start_s),
        outcome=data.outcome,
        reason=data.reason,
        mode=data.mode,
        paused=data.paused,
        policy=data.policy,
        settings=data.settings_by_name(),
        control=data.control,
        waiting=waiting,
        failing_since=data.failing_since,
        splits_failing_since=data.splits_failing_since,
        brokers_reporting_count=data.brokers_reporting_count,
        brokers_missing=data.brokers_missing,
        brokers_failed=data.brokers_failed,
        usage=data.usage,
        other_balancers=data.other_balancers,
        nearest=[
            row
            for row in data.examined.heaviest
            if row.outcome != "fired"
            and row.low_broker != row.high_broker  # Pulsar pairs the middle one with itself
        ][:NEAREST_COUNT],
        held={name: count for name, count in data.candidates.outcomes.items() if name != "acted"},
        actions=data.actions,
        in_flight=data.in_flight,
        findings=data.findings.heaviest,
        throttle=data.throttle,
        shadow=data.shadow,
        upkeep=data.upkeep,
        approval=data.approval,
    )


def status_text(status: ClusterStatus) -> str:
    """For a person: what is in force, what happened last, and why nothing did."""
    rows = [("", line) for line in _lateness(status)]
    rows += [
        ("controller", _controller(status)),
        *_label_lines("standby", list(map(_standby, status.standbys))),
        ("control", _control(status.control)),
        *([("waiting", status.waiting)] if status.waiting else []),
        ("policy", status.policy),
        *_label_lines(
            "settings", [f"{name} = {toml_value(value)}" for name, value in status.settings.items()]
        ),
        ("brokers", _brokers(status)),
        *_label_lines("beside", list(_describe_other_balancers(status.other_balancers))),
        ("round", f"{status.outcome}: {status.reason}"),
        *_label_lines("nearest", [f"{examined_text(row)}: {row.detail}" for row in status.nearest]),
        *([("held", counts_text(status.held))] if status.held else []),
        *_label_lines(
            "in flight",
            [f"{row.kind} {row.target} until {row.expires_at} ({row.id})" for row in status.in_flight],
        ),
        *_shadow(status.shadow),
        *_approval(status.approval),
        *_label_lines("upkeep", list(upkeep_lines(status.upkeep))),
        *_failing(status),
        *_label_lines("findings", [f"{each.kind} {each.subject}: {each.advice}" for each in status.findings]),
        *_throttle(status.throttle),
    ]
    head = f"{status.cluster} ({status.system}): {_describe_mode(status)}, round {status.round} ended {_age(status.age_s)}"
    return "".join(f"{line}\n" for line in [head, *table_lines(rows)])


def _describe_mode(status: ClusterStatus) -> str:
    doing = "acts" if status.mode == "act" else "dry-run"
    until = "" if status.control is None or status.control.until is None else f" until {status.control.until}"
    return f"{doing}, PAUSED{until}" if status.paused else doing


def _controller(status: ClusterStatus) -> str:
    known = f"{status.controller}, epoch {'unknown' if status.epoch is None else status.epoch}"
    beat = status.beat
    if status.runs is None:
        return f"{known}; whether it runs is not known"
    if beat is None:
        return f"{known}, DOES NOT RUN: no beat in the last hour"
    if not status.runs:
        last = "it ended properly" if beat.has_left else "its last beat was"
        return f"{known}, DOES NOT RUN: {last} {_age(beat.beat_age_s)}, from {beat.instance}"
    return f"{known}, runs as {beat.instance}, batch {'none yet' if beat.batch is None else beat.batch}"


def _standby(standby: Standby) -> str:
    able = f"COULD NOT LEAD: {standby.problem}" if standby.problem else "could take over"
    return f"{standby.instance}, version {standby.version}, {able}"


def _age(age_s: float) -> str:
    if age_s < 0:
        return "in the future"
    return f"{age_s:.0f} s ago" if age_s < _SHOWN_IN_SECONDS_S else f"{age_s / 60:.0f} min ago"


def _lateness(status: ClusterStatus) -> Iterator[str]:
    if status.is_late:
        why = {
            True: "no reports come: see the collector",
            False: "its controller does not run",
            None: "no reports come (see the collector), or no controller runs",
        }[status.runs]
        yield f"no newer round: {why}; the rest is as of that round"


def _control(control: ControlInForce | None) -> str:
    if control is None:
        return "as configured, no control event"
    problem = f"; its settings are not in force: {control.problem}" if control.problem else ""
    return f"{control.who or 'somebody'} at {control.time}: {control.why or 'no reason given'}{problem}"


def _brokers(status: ClusterStatus) -> str:
    found = [f"{status.brokers_reporting_count} reporting"]
    if status.brokers_missing:
        found.append(f"missing {', '.join(status.brokers_missing)}")
    found += [f"{name} failed ({why})" for name, why in status.brokers_failed.items()]
    if status.usage is not None:
        found.append(f"usage mean {status.usage.mean_points:.1f}, max {status.usage.max_points:.1f} points")
    return ", ".join(found)


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


def _shadow(shadow: ShadowSummary | None) -> Iterator[tuple[str, str]]:
    if shadow is not None:
        usage = f"usage mean {shadow.usage.mean_points:.1f}, max {shadow.usage.max_points:.1f} points"
        yield "shadow", f"{shadow.count} bundles are counted where the dry-run moved them: {usage}"


def _failing(status: ClusterStatus) -> Iterator[tuple[str, str]]:
    since = {"unloads": status.failing_since, "splits": status.splits_failing_since}
    for kind, at in since.items():
        if at is not None:
            yield "failing", f"{kind} are held since {at}, because too many failed: see `trimtab resume`"


def _approval(found: ApprovalSummary | None) -> Iterator[tuple[str, str]]:
    if found is not None:
        waiting = f"{found.open_count} wait for `trimtab approve`" if found.open_count else "nothing waits"
        yield "approval", f"required for unloads and splits: {waiting}"
        yield from (("", f"{row.kind} {row.bundle} until {row.expires_at} ({row.id})") for row in found.open)


def _throttle(throttle: ThrottleSummary | None) -> Iterator[tuple[str, str]]:
    if throttle is None:
        return
    moving = "unknown" if throttle.partitions_moving_count is None else throttle.partitions_moving_count
    eta = "" if throttle.eta_s is None else f", done in {throttle.eta_s:.0f} s"
    yield "throttle", f"{throttle.outcome}, partitions moving: {moving}{eta}"
    yield from _label_lines(
        "rates", [f"{role} {value_text(rate)} bytes/s" for role, rate in throttle.rates_bytes_per_s.items()]
    )


def _label_lines(name: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Lines under one name, which is shown before the first."""
    for number, line in enumerate(lines):
        yield ("" if number else name), line
