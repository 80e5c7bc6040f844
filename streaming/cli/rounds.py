"""``trimtab rounds``: what was seen, decided and held back, round by round."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from policies.shedding.registry import find_policy
from policies.wording import counted
from state.outputs import CandidateRow, LeftRow, RoundSummary, Section, SplitRow
from state.pulsar.wording import shadow_note
from state.summary import join_names
from streaming.cli.brokers import standing_text
from streaming.cli.options import broker_of, example, settings_options
from streaming.cli.output import table_lines, text_of, value_text
from streaming.cli.published import (
    LOOK_BACK_S,
    Newest,
    Remark,
    Round,
    as_published_option,
    is_round_of,
    print_topic,
    read_round,
    records_of,
    render_published,
    rounds_in,
    skipped_text,
    stranger_hint,
    tail_options,
)
from streaming.cli.summaries import (
    looked_at_lines,
    outcome_text,
    round_head,
    round_text,
    section_lines,
    tail_round_text,
)
from streaming.process.exits import NotFound, WrongUse
from streaming.settings import Settings
from streaming.settings.catalog import suggest_nearest
from streaming.transport.side import TopicRecord


class _RoundNumber(click.ParamType[int]):
    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(str(value))
        except ValueError:
            self.fail(f"{value!r} is no number of a round; leave it out for the newest", param, ctx)


RowT = TypeVar("RowT", bound=msgspec.Struct)
NEWEST_COUNT = 5
"""Rounds that are shown."""
REMEDIES = {
    "absent": "its owner's report has to list it again",
    "anti-affinity": "its destination has to own no more of its anti-affinity group than its source does",
    "budget": "the hour or the round has to be over, or the limit that it names (max_unloads_…, max_moved_…) has to be higher",
    "bundle-limit": "fewer other bundles have to move in the round, or max_unload_bundles_count has to be higher",
    "calm-after-change": "no broker may come or go for calm_after_change_rounds",
    "cooldown": "bundle_cooldown_s has to be over since the last action on it",
    "drained": "the drain has to end: `trimtab maintenance end`",
    "excluded-namespace": "its namespace has to be removed from excluded_namespaces",
    "failing": "fix the cause of the failed actions, then run: `trimtab resume`",
    "in-flight": "the result of the action on it has to come, or the action has to expire",
    "ineffective": "ineffective_rest_s has to be over: its last action had no effect, see the finding",
    "last-published": "its broker has to publish another bundle, too",
    "maintenance": "the maintenance of its broker or namespace has to end: `trimtab maintenance end`",
    "need-met": "more load has to leave its broker: other bundles already cover the need",
    "no-destination": "a broker that is less loaded than its own has to be able to receive it",
    "no-samples": "its traffic has to be reported once",
    "no-traffic": "it has to have traffic",
    "not-confirmed": "bundle_cooldown_s has to be over since its last action, which was skipped or got no result: see that an executor runs",
    "round-full": "the next round goes on with the plan; for more in one round, max_moved_ratio has to be higher",
    "other-group": "Pulsar has to move it back to a broker of its own isolation group",
    "overlapping": "the reports have to list no other range that overlaps its own, see the finding",
    "trimtab-topics": "trimtab's own topics have to carry less than half of its traffic",
    "starting": "the controller's start without memory has to be over for as long as the detail says",
    "paused": "the pause has to end: `trimtab resume`",
    "quiet-hours": "the quiet hours have to be over",
    "proposed": "the proposal of its broker has to be approved: `trimtab actions list --pending`",
    "rejected": "its proposal was rejected; it may be proposed again after that proposal would have expired",
    "sole-bundle": "its broker has to have another bundle, or keep_sole_bundle has to be off, or splits on",
    "split-first": "the reports have to show the split of the heavy bundle that the detail names",
    "split-instead": "it is split; its parts may move later",
    "too-big": "its broker has to give away more load than this bundle carries, or splits have to be on: [pulsar.split]",
    "too-little-benefit": "its move has to help its broker more, or, with a policy of Pulsar, min_unload_benefit_points has to be lower",
    "two-balancers": "Pulsar's own shedding and splitting have to be off",
    "unsettled-broker": "the reports have to show the last unload of its broker",
}
"""What would have to change for a bundle to move, for each reason of a guard or bundle; docs/understand/outcomes.md explains the reasons.
Those of a policy are declared with it."""


@click.group("rounds")
def rounds_command() -> None:
    """Read the round summaries of the audit topic."""


@rounds_command.command("tail", epilog=example("trimtab rounds tail --cluster east-1 --from 2h"))
@tail_options
def tail_command(settings: Settings, **options: Any) -> None:
    """Print a line for each round as it closes; Ctrl-C ends it.

    The table also shows what `trimtab run --skip-lost` skipped.
    """

    def line_of(record: TopicRecord) -> str:
        value = record.value or b""
        skipped = skipped_text(value)
        return tail_round_text(read_round(value).data) if skipped is None else Remark(skipped)

    print_topic(settings.topics.audit, line_of, settings=settings, **options)


@rounds_command.command(
    "show",
    short_help="Show what a round saw, decided and held back.",
    epilog=example("trimtab rounds show --cluster east-1 --bundle shop/orders/0x80000000_0xa0000000"),
)
@settings_options
@click.option("--cluster", metavar="NAME", help="Its cluster; may be left out where there is only one.")
@click.option(
    "--broker",
    metavar="ID",
    help="Only what rounds say of this broker; the port may be left out where one fits.",
)
@click.option(
    "--bundle", metavar="TENANT/NAMESPACE/RANGE", help="Only what rounds say of this bundle and its broker."
)
@as_published_option
@click.argument("number", type=_RoundNumber(), required=False)
def show_command(
    settings: Settings,
    cluster: str | None,
    broker: str | None,
    bundle: str | None,
    number: int | None,
    form: str,
) -> None:
    """Show what a round saw, decided and held back; without a number, the newest round.

    With --broker or --bundle: the newest five rounds that name it, each with its outcome, the numbers, and what would have to change; as
    JSON with only what they say of it.
    """
    if broker is not None and bundle is not None:
        raise WrongUse("--broker and --bundle cannot be given together")
    day_ago_ms = round((time.time() - LOOK_BACK_S[-1]) * 1000)
    if cluster is None:
        cluster = _only_cluster(settings, day_ago_ms)

    def asked(record: TopicRecord) -> bool:
        if number is None:
            return record.key == cluster.encode()
        return is_round_of(record.value or b"", cluster=cluster, number=number)

    newest, subject = Newest(settings), bundle or broker
    if subject is not None and number is None:
        newest.look_back((cluster,))
    else:
        newest.take(filter(asked, records_of(settings, settings.topics.audit, "earliest")))
    if not newest.records() and (subject is None or number is not None):
        which = "no round" if number is None else f"no round {number}"
        listed = f"`trimtab rounds tail --cluster {cluster} --from earliest --no-follow` lists all rounds"
        raise NotFound(
            f"{which} of {cluster} on {settings.topics.audit}: {stranger_hint(settings, cluster) or listed}"
        )
    if subject is not None:
        event = next(rounds_in(filter(asked, newest.records())), None)
        records: Iterable[TopicRecord] = newest.records()
        if number is None:
            records = filter(asked, records_of(settings, settings.topics.audit, day_ago_ms))
        _show_about(settings, cluster, number, event, records, subject, form, is_bundle=bundle is not None)
        return
    if form == "table":
        _, event = next(newest.rounds())
        click.echo(round_text(event), nl=False)
    else:
        click.echo(render_published(newest.records()[0].value or b"", form), nl=False)


def _only_cluster(settings: Settings, begin_ms: int) -> str:
    """The cluster that has rounds since a moment of the last day. Raises ``NotFound`` or ``WrongUse`` unless it is a single one."""
    newest = Newest(settings)
    newest.read_since(begin_ms)
    clusters = sorted(newest.clusters)
    if not clusters:
        raise NotFound("no cluster has a round of the last day: `trimtab status` says why")
    if len(clusters) > 1:
        raise WrongUse(f"several clusters have rounds: give --cluster, one of {join_names(clusters)}")
    return clusters[0]


def _show_about(
    settings: Settings,
    cluster: str,
    number: int | None,
    event: Round | None,
    records: Iterable[TopicRecord],
    subject: str,
    form: str,
    *,
    is_bundle: bool,
) -> None:
    """Show what the rounds of ``records`` say of the subject; ``event`` is the newest of them."""
    if event is not None and event.data.system == "kafka":
        raise WrongUse(
            f"{cluster} is a Kafka cluster: --broker and --bundle are about Pulsar's balancing. What each broker carries and "
            f"moves: trimtab status --brokers --cluster {cluster}"
        )
    known: set[str] = set()
    if event is not None and not is_bundle:
        known = {*event.data.brokers_reporting, *event.data.brokers_missing}
        subject = broker_of(subject, known)
    rounds = newest_about(records, subject, is_bundle=is_bundle)
    if not rounds:
        why = (
            "its broker did not fire, or 100 heavier bundles did; "
            f"see its broker: trimtab rounds show --cluster {cluster} --broker ID"
            if is_bundle
            else "it did not report, or 100 brokers are busier; "
            f"`trimtab rounds show --cluster {cluster}` shows the newest round"
        )
        if known and subject not in known:
            why = suggest_nearest(subject, known)
        elif (hint := stranger_hint(settings, cluster)) is not None:
            why = f"no round of the last day is of {cluster}; {hint}"
        which = (
            f"no round of {cluster} in the last day names"
            if number is None
            else f"round {number} of {cluster} does not name"
        )
        raise NotFound(f"{which} {subject}: {why}")
    if form == "table":
        click.echo(about_text([each.data for each in rounds]), nl=False)
    else:
        for each in rounds:
            click.echo(render_published(msgspec.json.encode(each), form), nl=False)


def newest_about(records: Iterable[TopicRecord], subject: str, *, is_bundle: bool) -> list[Round]:
    """The newest rounds that name a broker or bundle, with only what they say of it; the newest comes first."""
    found: deque[Round] = deque(maxlen=NEWEST_COUNT)
    named = subject.encode()
    for event in rounds_in(record for record in records if named in (record.value or b"")):
        data = _about(event.data, subject, is_bundle=is_bundle)
        if data is not None:
            found.append(msgspec.structs.replace(event, data=data))
    return list(reversed(found))


def _about(data: RoundSummary, subject: str, *, is_bundle: bool) -> RoundSummary | None:
    """The summary with only what it says of a broker or bundle, and of the bundle's broker; None where that is nothing."""

    def is_named(row: CandidateRow | SplitRow | LeftRow) -> bool:
        return subject == (row.bundle if is_bundle else row.broker)

    candidates, splits = _keep(data.candidates, is_named), _keep(data.splits, is_named)
    left = data.maintenance and _keep(data.maintenance.bundles_left, is_named)
    judged = data.judged and _keep(data.judged, lambda row: subject in {row.bundle, *row.brokers.values()})
    named = [row.broker for section in (candidates, splits, left) if section for row in section.heaviest]
    brokers = {*named} if is_bundle else {subject}
    loads = [row for row in data.brokers if row.broker in brokers]
    missing = [name for name in data.brokers_missing if name in brokers]
    if not (named or (judged and judged.heaviest) or (loads and not is_bundle) or missing):
        return None
    return msgspec.structs.replace(
        data,
        brokers=loads,
        brokers_missing=missing,
        brokers_failed={name: why for name, why in data.brokers_failed.items() if name in brokers},
        examined=_keep(data.examined, lambda row: bool({row.high_broker, row.low_broker} & brokers)),
        candidates=candidates,
        splits=splits,
        judged=judged,
        maintenance=data.maintenance
        and left
        and msgspec.structs.replace(data.maintenance, bundles_left=left),
    )


def _keep(section: Section[RowT], is_named: Callable[[RowT], bool]) -> Section[RowT]:
    rows = [row for row in section.heaviest if is_named(row)]
    return Section(count=len(rows), outcomes=dict(Counter(row.outcome for row in rows)), heaviest=rows)  # type: ignore[attr-defined]


def about_text(rounds: Sequence[RoundSummary]) -> str:
    """What rounds say of a broker or bundle, and what would have to change since the newest of them."""
    lines = [line for data in rounds for line in _round_lines(data)]
    remedies = dict(_remedies(rounds[0]))
    if remedies:
        lines += ["What would have to change:", *table_lines(list(remedies.items()))]
    return text_of(lines)


def _round_lines(data: RoundSummary) -> Iterator[str]:
    drains = ", bundles at drained brokers apart" if data.maintenance and data.maintenance.drains else ""
    yield round_head(data)
    yield f"  the whole cluster{drains}: {outcome_text(data)}"
    for load in data.brokers:
        measured = (
            f"{name} {value_text(value)}" for name, value in load.resources.items() if value != "not-measured"
        )
        mean = "" if data.usage is None else f", the mean is {data.usage.mean_points:.1f}"
        standing = standing_text(load.gives_none_reason, load.receives_none_reason)
        parts = [
            ", ".join(measured),
            counted(load.bundles_count, "bundle"),
            *([standing] if standing else []),
        ]
        yield f"  {load.broker} is at {load.usage_points:.1f} %{mean}: {'; '.join(parts)}"
    for name in data.brokers_missing:
        yield f"  {name} did not report: {data.brokers_failed.get(name, 'the reason is not known')}"
    yield from looked_at_lines(data)
    judged = [] if data.judged is None else data.judged.heaviest
    if judged:
        yield from ("", "Earlier actions that were judged:")
        yield from table_lines([(f"{row.kind} {row.bundle}", row.outcome, row.id) for row in judged])
    if data.maintenance is not None and data.maintenance.bundles_left.count:
        yield from section_lines(
            f"Left at drained brokers{shadow_note(data.shadow)}",
            data.maintenance.bundles_left,
            lambda row: (row.bundle, f"at {row.broker}", row.detail),
        )
    yield ""


def _remedies(data: RoundSummary) -> Iterator[tuple[str, str]]:
    """By outcome what would have to change, those of the whole cluster first."""
    if data.paused:
        yield "paused", REMEDIES["paused"]
    if data.failing_since is not None:
        yield "failing", REMEDIES["failing"]
    if data.mode == "dry-run":
        yield "dry-run", 'mode has to be "act": `trimtab mode act`'
    found = [(outcome, examined_remedy_of(outcome, data.policy)) for outcome in data.examined.outcomes]
    held = (*data.candidates.outcomes, *(data.maintenance.bundles_left.outcomes if data.maintenance else ()))
    found += [(outcome, REMEDIES.get(outcome, "")) for outcome in held]
    yield from ((outcome, remedy) for outcome, remedy in found if remedy)


def examined_remedy_of(outcome: str, policy: str) -> str:
    """What would have to change for what a policy says of a pair or broker; empty for a policy or an outcome of another version."""
    found = find_policy(policy)
    return found.text_of(outcome).remedy if found is not None and outcome in found.outcomes else ""
