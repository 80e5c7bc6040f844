"""The frame of a round's summary: the fields that both systems fill, and the cut to its greatest size.

The heaviest hundred of each table are shown in full, the rest counted. A summary is at most 256 KiB whatever the names are: the
tables are halved until it fits, and so is the section of a throttle.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from policies.wording import counted, time_text
from state.closing import Closing, Outcome, failing_since
from state.events import Control
from state.memory import Header
from state.outputs import (
    ControlInForce,
    Finding,
    InFlightRow,
    RoundSummary,
    Section,
    ThrottleSummary,
    canonical,
    rfc3339,
)
from state.overlay import epoch_ms, moment_at
from state.settings import MS_PER_S

Row = TypeVar("Row")
V = TypeVar("V")
AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)

SHOWN_ROWS = 100
"""Rows of a table shown in full."""
UNANSWERED_COUNT = 3
"""So many actions in a row without a result are no accident."""
WAITING_ROUNDS = 3
"""After so many rounds, an executor that runs has answered the first action."""
_NAMED_COUNT = 3
MAX_BYTES = 256 * 1024
"""Size of a summary's data; Kafka's default record limit is four times that."""
MAX_SETTINGS_BYTES = 32 * 1024
"""Size of the file's settings in a summary, and of the control event's: an eighth of it each, enough for 300 brokers with values of
their own."""
MAX_REMARK_CHARACTERS = 500
"""Length of an operator's name or reason, or of a problem, in a summary, so that summaries stay small."""


def frame(
    closing: Closing,
    header: Header,
    *,
    policy: str,
    outcome: Outcome,
    reason: str,
    reports_ms: Mapping[str, int],
    live: Sequence[str],
    findings: Sequence[Finding] = (),
) -> RoundSummary:
    """A summary without the system's own part, but with its ``findings``.

    ``reports_ms`` has the time of each broker's report of the round.
    """
    tick = closing.open_round.tick
    missing = [name for name in live if name not in reports_ms]
    failing = failing_since(header, closing.settings.pulsar.guards)
    system = header.system or "pulsar"
    in_force = closing.settings.in_force[system]
    return RoundSummary(
        cluster=closing.cluster,
        system=system,
        round=closing.number,
        start=rfc3339(closing.start_ms),
        end=rfc3339(closing.end_ms),
        gap_rounds=closing.gap_rounds,
        restarted=closing.restarted,
        outcome=outcome,
        reason=reason,
        policy=policy,
        mode=closing.mode,
        paused=closing.overlay.paused,
        failing_since=failing.get("unload"),
        splits_failing_since=None if header.system == "kafka" else failing.get("split"),
        other_balancers=None,
        last_actions=header.ledger.outcome_counts(),
        control=_control(closing.control, closing.settings_problem),
        settings_digest=in_force.digest,
        settings=in_force.different,
        configured=msgspec.structs.replace(
            closing.configured, settings=_whole_or_none(closing.configured.settings)
        ),
        brokers_reporting_count=len(reports_ms),
        brokers_live_count=len(live),
        brokers_reporting=sorted(reports_ms),
        brokers_missing_count=len(missing),
        brokers_missing=missing,
        brokers_excluded=[],
        brokers_asked=[] if tick is None else sorted(tick.asked),
        brokers_failed={} if tick is None else dict(tick.failed),
        oldest_report_age_s=(closing.end_ms - min(reports_ms.values(), default=closing.end_ms)) / MS_PER_S,
        usage=None,
        resources={},
        brokers=[],
        examined=section_of([], []),
        candidates=section_of([], []),
        splits=section_of([], []),
        findings=findings_section([*_unanswered(closing, header), *_skipped_after_pause(closing), *findings]),
        actions_count=0,
        actions=[],
        in_flight=_in_flight(header, closing.end_ms),
        throttle=None,
    )


def _in_flight(header: Header, end_ms: int) -> list[InFlightRow]:
    return [
        InFlightRow(
            id=decision.id,
            kind=decision.kind,
            target=decision.bundle,
            expires_at=rfc3339(decision.expires_ms),
        )
        for decision in header.ledger.decisions
        if decision.id and not decision.dry_run and decision.is_in_flight(end_ms)
    ]


def _control(event: Control | None, problem: str | None) -> ControlInForce | None:
    if event is None:
        return None
    data = event.data
    return ControlInForce(
        id=event.id[:MAX_REMARK_CHARACTERS],
        time=rfc3339(event.time_ms),
        who=(data.who or "")[:MAX_REMARK_CHARACTERS],
        why=(data.why or "")[:MAX_REMARK_CHARACTERS],
        arrived_late=event.arrived_late,
        resumed_at=None if data.resumed_at is None else rfc3339(epoch_ms(data.resumed_at)),
        problem=None if problem is None else problem[:MAX_REMARK_CHARACTERS],
        until=rfc3339(epoch_ms(data.until)) if data.paused and data.until is not None else None,
        settings=_whole_or_none(data.settings),
    )


def _whole_or_none(settings: dict[str, Any] | None) -> dict[str, Any] | None:
    """Settings that commands take for complete, so that they are not cut; None if they are too large to be shown."""
    return settings if len(msgspec.json.encode(settings)) <= MAX_SETTINGS_BYTES else None


def section_of(outcomes: Iterable[str], rows: Sequence[Row]) -> Section[Row]:
    """All ``outcomes`` counted, and the first of the rows, which are in order; the heaviest come first."""
    counts = Counter(outcomes)
    return Section(
        count=counts.total(), outcomes=dict(sorted(counts.items())), heaviest=list(rows[:SHOWN_ROWS])
    )


def findings_section(findings: Sequence[Finding]) -> Section[Finding]:
    """All of a round's findings; the first are shown."""
    return section_of((finding.kind for finding in findings), findings)


def _skipped_after_pause(closing: Closing) -> list[Finding]:
    """Actions that an executor skipped as paused after the pause had ended by itself: the executor does not know ``until``."""
    control = closing.control.data if closing.control else None
    if control is None or control.until is None or control.is_paused_at(moment_at(closing.start_ms)):
        return []
    until_ms = epoch_ms(control.until)
    return [
        Finding(
            kind="skipped-after-pause",
            subject=result.action_id,
            broker="",
            bytes_per_s=None,
            advice=f"the pause ended by itself at {rfc3339(until_ms)} and its executor still takes the cluster for paused: "
            "update the executor, or run `trimtab resume`",
        )
        for result in sorted(closing.open_round.results)
        if result.is_held and control.paused and result.time_ms >= until_ms
    ]


def _unanswered(closing: Closing, header: Header) -> list[Finding]:
    """Whether actions get no result: nobody carries them out, or somebody who sends no results."""
    missed = None if closing.is_dry_run else _missed_results(closing, header)
    if missed is None:
        return []
    kind, advice = missed
    return [Finding(kind=kind, subject=closing.cluster, broker="", bytes_per_s=None, advice=advice)]


def _missed_results(
    closing: Closing, header: Header
) -> tuple[Literal["no-results", "not-carried-out"], str] | None:
    """The kind of finding and its advice; None where no result is missed."""
    last, executor = header.ledger.unanswered, f"`trimtab execute {header.system} {closing.cluster}`"
    if last is None:
        waiting = header.ledger.waiting_since_last_result(end_ms=closing.end_ms)
        if not waiting or closing.end_ms - waiting[0].decided_ms < WAITING_ROUNDS * header.length_ms:
            return None
        which = f"{counted(len(waiting), 'action')}, decided since {time_text(rfc3339(waiting[0].decided_ms))}, got no result yet"
        return "no-results", f"{which}: if no executor runs, start one: {executor}"
    is_sure = last.count >= UNANSWERED_COUNT
    since = time_text(rfc3339(last.since_ms))
    last_ones = (
        f"last action, decided at {since},"
        if last.count == 1
        else f"last {last.count} actions, since {since},"
    )
    which = f"the {last_ones} expired without a result"
    if not last.had_effect:
        remedy = "nobody carries them out. Start an executor" if is_sure else "if no executor runs, start one"
        kind: Literal["no-results", "not-carried-out"] = "not-carried-out" if is_sure else "no-results"
        return kind, f"{which}, and the reports show no effect: {remedy}: {executor}"
    if not is_sure:
        return None
    return "no-results", (
        f"{which}, but the reports show their effect: somebody else's executor carries them out; let it send results "
        "(docs/reference/consumers.md), so that failures are seen, too"
    )


def join_names(names: Sequence[str], most: int = _NAMED_COUNT, *, count: int = 0) -> str:
    """The first ``most`` of some names, and how many more there are, for a sentence; ``count`` is that of all where not all are known."""
    more = max(count, len(names)) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def fit(summary: RoundSummary) -> RoundSummary:
    """The same summary, its tables halved until it is at most ``MAX_BYTES``."""
    shown = SHOWN_ROWS
    while True:
        cut = _cut(summary, shown)
        if shown == 0 or len(canonical(cut)) <= MAX_BYTES:
            return cut
        shown //= 2


def _cut(summary: RoundSummary, shown: int) -> RoundSummary:
    return msgspec.structs.replace(
        _cut_lists(summary, shown),
        brokers_failed=_first(summary.brokers_failed, shown),
        settings=_cut_settings(summary.settings, shown),
    )


def _cut_lists(section: AnyStruct, shown: int) -> AnyStruct:
    """The first rows of each list of a section, and of the sections in it; the counts show how much is cut off."""
    cut: dict[str, Any] = {}
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, list):
            cut[name] = value[:shown]
        elif isinstance(value, ThrottleSummary):
            cut[name] = cut_throttle(value, shown)
        elif isinstance(value, msgspec.Struct):
            cut[name] = _cut_lists(value, shown)
    return msgspec.structs.replace(section, **cut)


def _cut_settings(settings: dict[str, Any], shown: int) -> dict[str, Any]:
    """The settings with shorter tables of brokers and rules, and with shorter lists if they are too large; nothing else in them is long."""
    cut: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            is_table = name in {"brokers", "standing"}
            cut[name] = _first(value, shown) if is_table else _cut_settings(value, shown)
        else:
            is_cut = isinstance(value, list | tuple) and shown < SHOWN_ROWS
            cut[name] = value[:shown] if is_cut else value
    return cut


SHOWN_CHARACTERS = 500
"""Characters shown of a list that somebody else set."""


def cut_throttle(throttle: ThrottleSummary, shown: int) -> ThrottleSummary:
    """Tables of at most ``shown`` rows; the counts show how much is cut off."""
    return msgspec.structs.replace(
        _cut_lists(throttle, shown),
        recovering=_first(throttle.recovering, shown),
        rates_bytes_per_s=_first(throttle.rates_bytes_per_s, 10 * shown),
        min_bytes_per_s=_first(throttle.min_bytes_per_s, 10 * shown),
        others_leader_throttled_replicas=_texts(throttle.others_leader_throttled_replicas, shown),
        others_follower_throttled_replicas=_texts(throttle.others_follower_throttled_replicas, shown),
        others_rates_bytes_per_s=_first(throttle.others_rates_bytes_per_s, shown),
        lost_leader_throttled_replicas=_texts(throttle.lost_leader_throttled_replicas, shown),
        lost_follower_throttled_replicas=_texts(throttle.lost_follower_throttled_replicas, shown),
        changed_rates_bytes_per_s=_first(throttle.changed_rates_bytes_per_s, shown),
    )


def _first(table: dict[str, V], shown: int) -> dict[str, V]:
    return dict(list(table.items())[:shown])


def _texts(lists: dict[str, str], shown: int) -> dict[str, str]:
    return {
        topic: text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
        for topic, text in _first(lists, shown).items()
    }
