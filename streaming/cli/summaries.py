"""Rounds as text: a line for each as it comes, and one of them with all its details."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from policies.wording import bytes_text, counted, duration, rate_text, time_text
from state.kafka.wording import outcome_words
from state.outputs import (
    CandidateRow,
    DrainRow,
    ExaminedRow,
    Finding,
    MaintenanceSummary,
    RoundSummary,
    Section,
    SplitRow,
    ThrottleSummary,
)
from state.pulsar.wording import shadow_note
from state.summary import join_names
from streaming.cli.output import asked_text, counts_text, table_lines, text_of, value_text
from streaming.cli.published import Round

RowT = TypeVar("RowT")
BundleRowT = TypeVar("BundleRowT", CandidateRow, SplitRow)

_ROWS_MAX = 20
"""Rows of a table that are shown; the rest is counted, and is on the audit topic."""


def tail_round_text(data: RoundSummary) -> str:
    """A round in one line."""
    throttle = data.throttle
    copied = (
        f"; {_copied_text(throttle)}" if throttle is not None and throttle.partitions_moving_count else ""
    )
    return f"{round_head(data)} {outcome_text(data)}{copied}\n"


def round_head(data: RoundSummary) -> str:
    """Which round it is, and its mode."""
    marks = [data.mode, *(["paused"] if data.paused else [])]
    return f"{time_text(data.end, is_exact=True)} {data.cluster} round {data.round} [{', '.join(marks)}]"


def outcome_text(data: RoundSummary) -> str:
    """What a round did, and why it did no more; the policies ran where nothing else is said."""
    return data.reason if data.outcome == "decided" else f"{data.outcome}: {data.reason}"


def round_text(event: Round) -> str:
    """What a round saw, decided and held back."""
    data = event.data
    lines = [
        f"round {data.round} of {data.cluster} ({data.system}), {time_text(data.start, is_exact=True)} to {time_text(data.end, is_exact=True)}",
        outcome_text(data),
        "",
        *circumstances_lines(data),
        *looked_at_lines(data),
        *_aftermath_lines(data),
        "",
        f"Actions of the round: {all_names(data.actions, data.actions_count) or 'none'}",
    ]
    return text_of(lines)


def circumstances_lines(data: RoundSummary) -> list[str]:
    """Mode, brokers, settings and the control event of a round."""
    facts = [
        ("mode", data.mode + (", paused" if data.paused else "")),
        ("brokers", f"{data.brokers_reporting_count} reporting, {data.brokers_missing_count} missing"),
        ("settings", data.settings_digest),
    ]
    if data.control is not None:
        facts.append(("control", f"{data.control.who}: {data.control.why}"))
    return table_lines(facts)


def looked_at_lines(data: RoundSummary, *, but: str = "") -> Iterator[str]:
    """What the policy looked at: for Kafka what moves and its rates, for Pulsar brokers, and bundles with what became of each; ``but`` is a bundle that is shown elsewhere."""
    if data.system == "kafka":
        rows = [
            ("" if at else name, line)
            for name, lines in throttle_facts(data)
            for at, line in enumerate(lines)
        ]
        yield from ("", "Copies:" + ("" if rows else " none was judged"), *table_lines(rows))
        return
    yield from section_lines(f"Looked at{shadow_note(data.shadow)}", data.examined, _examined_row)
    bundles = "Other bundles" if but else "Bundles"
    candidates = _drop_row(data.candidates, but)
    title = f"{bundles} of the brokers that fired{shadow_note(data.shadow)}"
    yield from section_lines(title, candidates, _candidate_row)
    if data.splits.count:
        yield from section_lines(
            f"{bundles} that stood out for a split",
            _drop_row(data.splits, but),
            lambda row: (row.bundle, f"at {row.broker}", row.detail),
        )


def throttle_facts(data: RoundSummary) -> Iterator[tuple[str, list[str]]]:
    """What a Kafka cluster copies, or is planned to, and at which rates: names, each with its lines."""
    throttle = data.throttle
    if throttle is None:
        return
    words = outcome_words(throttle.outcome, is_dry_run=data.mode == "dry-run")
    lines = [words if throttle.outcome == "nothing-moves" else f"{words}, {_copied_text(throttle)}"]
    for broker, since in throttle.recovering.items():
        how = (
            "is away, and recovers when it is back" if since is None else f"recovers since {time_text(since)}"
        )
        lines.append(f"broker {broker} {how}")
    lines += [
        f"{name} is under min.insync.replicas: other copies make room" for name in throttle.under_min_isr
    ]
    if throttle.outcome == "nothing-moves" and data.in_flight:
        lines.append(
            "what was set stays on the cluster until an executor has carried out the action in flight"
        )
    yield "throttle", lines
    would_be = "would be " if data.mode == "dry-run" else ""
    rates = throttle.rates_bytes_per_s.items()
    yield "rates", [f"{role} {would_be}{rate_text(rate)}" for role, rate in rates]
    if throttle.partitions_moving_count == 0:
        others = throttle.others_rates_bytes_per_s.items()
        yield (
            "left by others",
            [f"{role} {rate_text(rate)}, where nothing is paced" for role, rate in others],
        )


def _copied_text(throttle: ThrottleSummary) -> str:
    """How much is copied, or planned to be, how much of it is left, and how long it takes."""
    count = throttle.partitions_moving_count
    what, takes = ("planned", "would take") if throttle.planned else ("copied", "done in")
    left = f", {bytes_text(throttle.bytes_left)} left" if count and throttle.bytes_left is not None else ""
    eta = "" if throttle.eta_s is None else f", {takes} {duration(throttle.eta_s)}"
    return f"partitions {what}: {'unknown' if count is None else count}{left}{eta}"


def section_lines(
    title: str, section: Section[RowT], row_of: Callable[[RowT], tuple[str, ...]]
) -> Iterator[str]:
    """Title and counts, the heaviest rows, and how many are not shown."""
    yield from ("", f"{title}: {counts_text(section.outcomes)}")
    rows = [row_of(row) for row in section.heaviest[:_ROWS_MAX]]
    yield from table_lines(rows)
    yield from more_line(section.count, rows, "counted above")


def all_names(names: Sequence[str], count: int) -> str:
    """Names, and how many of ``count`` a summary leaves out."""
    return join_names(names, len(names), count=count)


def more_line(count: int, shown: Sequence[object], which: str = "") -> Iterator[str]:
    """How many of ``count`` are not shown, in a line of its own; nothing where all are."""
    if count > len(shown):
        yield f"  and {count - len(shown)} more" + (f", {which}" if which else "")


def _drop_row(section: Section[BundleRowT], bundle: str) -> Section[BundleRowT]:
    """The section without the row of a bundle."""
    rows = [row for row in section.heaviest if row.bundle != bundle]
    dropped = Counter(row.outcome for row in section.heaviest if row.bundle == bundle)
    outcomes = {name: count - dropped[name] for name, count in section.outcomes.items()}
    return Section(
        count=section.count - dropped.total(),
        outcomes={name: count for name, count in outcomes.items() if count},
        heaviest=rows,
    )


def examined_text(row: ExaminedRow) -> str:
    """The pair, or the broker, that the policy looked at. Pulsar pairs the broker in the middle of an odd number with itself."""
    if row.low_broker == row.high_broker:
        return f"{row.high_broker} in the middle"
    return row.high_broker if row.low_broker is None else f"{row.high_broker} with {row.low_broker}"


def _examined_row(row: ExaminedRow) -> tuple[str, ...]:
    numbers = (f"{name} {evidence_text(name, value)}" for name, value in row.evidence.items())
    return (examined_text(row), row.detail, ", ".join(numbers))


def evidence_text(name: str, value: object) -> str:
    """A number of the evidence. A policy's arithmetic may make a need negative: then nothing has to move."""
    is_no_need = name.startswith("to_move_") and isinstance(value, int | float) and value < 0
    return value_text(0 if is_no_need else value)


def _candidate_row(row: CandidateRow) -> tuple[str, ...]:
    traffic = f"{value_text(row.messages_per_s)} messages/s, {value_text(row.bytes_per_s)} bytes/s"
    return (row.bundle, f"at {row.broker}", row.detail, traffic)


def _aftermath_lines(data: RoundSummary) -> Iterator[str]:
    """Earlier actions whose effect is now known, proposals, maintenance and drains, and findings, which no action can help."""
    if data.judged is not None:
        yield from section_lines(
            "Earlier actions that were judged",
            data.judged,
            lambda row: (f"{row.kind} {row.bundle}", row.outcome, row.id),
        )
    if data.approval is not None:
        yield from ("", f"Proposals: {data.approval.open_count} open, {len(data.approval.expired)} expired")
        yield from table_lines(
            [
                (f"{row.verdict} by {row.who}", row.proposal_id, row.outcome, row.detail)
                for row in data.approval.answers
            ]
        )
    lines = list(maintenance_lines(data))
    if lines:
        yield from ("", "Maintenance and drains", *(f"  {line}" for line in lines))
    if data.findings.count:
        yield from section_lines(
            "Findings", data.findings, lambda each: (each.kind, each.subject, each.advice)
        )


def missed_results(data: RoundSummary) -> list[Finding]:
    """What a round says about actions that get no result."""
    return [each for each in data.findings.heaviest if each.kind in {"not-carried-out", "no-results"}]


def drain_line(row: DrainRow) -> str:
    """A drain in words."""
    if row.state == "silent" or row.bundles_left_count is None:
        return f"drain of {row.name}: no report of it"
    if row.state == "empty":
        return f"drain of {row.name}: empty, under maintenance until it is ended"
    if row.state == "busy":
        return f"drain of {row.name}: it lists no bundle, but its totals show traffic: it is not known to be empty"
    if row.state == "only-system-bundles":
        bundles = f"{counted(row.system_bundles_count or 0, 'bundle')} of Pulsar's own"
        return f"drain of {row.name}: empty but for {bundles}, under maintenance until it is ended"
    return f"drain of {row.name}: {counted(row.bundles_left_count, 'bundle')} left of {row.bundles_at_start_count}"


def own_lines(row: DrainRow) -> Iterable[str]:
    """Which bundles of Pulsar's own are still at a broker whose other bundles have left."""
    if row.state != "only-system-bundles":
        return
    yield "  they serve the whole cluster, such as transaction coordinators: when the broker stops, their clients wait for others"
    yield from (f"  {each} is Pulsar's own" for each in row.system_bundles)
    yield from more_line(row.system_bundles_count or 0, row.system_bundles)


def left_lines(found: MaintenanceSummary | None, note: str = "", *, above: str = "") -> Iterable[str]:
    """Which bundles are still at drained brokers, and why; ``note`` says what is only pretended, ``above`` what is told already."""
    if found is None or not found.bundles_left.count:
        return
    yield f"bundles left{note}: {counts_text(found.bundles_left.outcomes)}"
    stay = [each for each in found.bundles_left.heaviest if each.outcome != "acted"]
    told = {each.detail for each in stay if each.detail in above}
    for each in stay:
        yield f"  {each.bundle} at {each.broker}: {each.outcome if each.detail in told else each.detail}"
        told.add(each.detail)
    stay_count = found.bundles_left.count - found.bundles_left.outcomes.get("acted", 0)
    yield from more_line(stay_count, stay, "which stay, too")


def maintenance_lines(data: RoundSummary) -> Iterable[str]:
    """Maintenance and drains as a round has them, for ``status`` and ``rounds``."""
    found = data.maintenance
    if found is None:
        return
    for what, rows in (("broker", found.brokers), ("namespace", found.namespaces)):
        for each in rows:
            until = "until it is ended" if each.until is None else f"until {time_text(each.until)}"
            unknown = " (no bundle of it is known: is the name right?)" if each.bundles_count == 0 else ""
            yield f"{what} {each.name} under maintenance {until}, by {asked_text(each.who, each.why)}{unknown}"
    for row in found.drains:
        yield f"{drain_line(row)}, by {asked_text(row.who, row.why)}"
        yield from own_lines(row)
    yield from left_lines(found, shadow_note(data.shadow), above=data.reason)
