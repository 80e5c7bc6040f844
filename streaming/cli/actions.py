"""``trimtab actions``: watch what is decided, and ask why.

Published actions of every kind are read by the fields that all kinds have; unknown fields are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from policies.wording import counted, time_text
from state.outputs import ApprovalRow, RoundSummary
from state.outputs.actions import ACTION_PREFIX
from state.pulsar.wording import shadow_note
from streaming.cli.approve import ID_MIN, newest_rounds, open_proposals, proposal_text
from streaming.cli.options import cluster_option, example, settings_options
from streaming.cli.output import format_option, render, table_lines, text_of, value_text
from streaming.cli.published import (
    Remark,
    UnreadableEvent,
    epoch_of,
    is_round_of,
    is_stale,
    print_topic,
    read_round,
    records_of,
    rounds_in,
    tail_options,
)
from streaming.cli.summaries import all_names, circumstances_lines, evidence_text, looked_at_lines
from streaming.contract.encode import LEADER_TYPE, LeaderData
from streaming.contract.envelope import ReadEnvelope, read_envelope
from streaming.process.exits import NotFound, WrongUse
from streaming.settings import Settings
from streaming.transport.side import Begin, PartitionEpochs, TopicRecord

_AROUND_MS = 600_000
"""How far around an action its round's summary is looked for: both are written together, but clocks may have been set in between."""
_SIDES = {"source": 0, "destination": 1}
"""What is shown first of the sides of an action; others follow by name."""


class ActionData(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every action; a broker is None if its kind has none."""

    round: int
    policy: str
    trigger: str
    reason: str
    evidence: dict[str, Any]
    expected: dict[str, Any] = {}
    precondition: dict[str, Any] = {}
    expires_at: str
    dry_run: bool
    proposal: bool = False
    proposal_id: str | None = None
    broker: str | None = None
    source_broker: str | None = None
    destination_broker: str | None = None


class Action(ReadEnvelope[ActionData], frozen=True, kw_only=True):
    """An action event."""

    @property
    def kind(self) -> str:
        """``unload``, ``split``, …"""
        return self.type.removeprefix(ACTION_PREFIX).rpartition(".")[0]


_leaders = msgspec.json.Decoder(ReadEnvelope[LeaderData])
_actions = msgspec.json.Decoder(Action)


def read_action(value: bytes) -> Action:
    """The action a record holds; raises ``UnreadableEvent``."""
    try:
        action = _actions.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not an action: {error}; it may be from another version of trimtab") from error
    if not action.type.startswith(ACTION_PREFIX):
        raise UnreadableEvent(f"{action.type} is not an action")
    return action


def has_id(value: bytes, beginning: str) -> bool:
    """Whether a record is an action whose id has this beginning."""
    try:
        event = read_envelope(value)
    except msgspec.MsgspecError:
        return False
    return event.type.startswith(ACTION_PREFIX) and event.id.startswith(beginning)


def read_leader(value: bytes) -> ReadEnvelope[LeaderData] | None:
    """The event about a new leader; None for any other record."""
    try:
        event = _leaders.decode(value)
    except msgspec.MsgspecError:
        return None
    return event if event.type == LEADER_TYPE else None


@click.group("actions")
def actions_command() -> None:
    """Watch what is decided, and ask why."""


@actions_command.command("tail", epilog=example("trimtab actions tail --cluster east-1 --from earliest"))
@tail_options
@click.option("--dry-run", is_flag=True, help="Read the dry-run's topic: what would have been done.")
def tail_command(settings: Settings, *, dry_run: bool, **options: Any) -> None:
    """Print actions as they are published; Ctrl-C ends it.

    The table also shows when another controller takes over.
    """
    epochs = PartitionEpochs()

    def line_of(record: TopicRecord) -> str:
        value, epoch = record.value or b"", epoch_of(record.headers)
        leader = read_leader(value)
        if leader is not None:
            is_stale(epochs, record.partition, leader.source, epoch)
            return Remark(leader_text(leader))
        action = read_action(value)
        return tail_text(action, epoch=epoch, stale=is_stale(epochs, record.partition, action.source, epoch))

    topics = settings.topics
    print_topic(topics.actions_dry_run if dry_run else topics.actions, line_of, settings=settings, **options)


@actions_command.command(
    "list",
    short_help="Show what waits for approval and what is in flight.",
    epilog=example("trimtab actions list --pending --cluster east-1"),
)
@settings_options
@cluster_option
@click.option("--pending", is_flag=True, help="Only proposals that wait for `trimtab approve`.")
@format_option("JSON and YAML are a list with one object for each.")
def list_command(settings: Settings, cluster: str | None, form: str, *, pending: bool) -> None:
    """Show what waits for approval and what is in flight, according to the newest round of each cluster."""
    rounds = newest_rounds(settings, cluster=cluster)
    waiting = open_proposals(rounds)
    flying = [] if pending else [(event.cluster, row) for event in rounds for row in event.data.in_flight]
    if form != "table":
        rows = [
            {"state": state, "cluster": name, **msgspec.to_builtins(row)}
            for state, found in (("proposed", waiting), ("in-flight", flying))
            for name, row in found
        ]
        click.echo(render(rows, form), nl=False)
        return
    if not rounds:
        click.echo(
            "no round of the last day is there, so what waits is not known: `trimtab status` says why",
            err=True,
        )
        return
    for each in waiting:
        click.echo(f"waits for approval: {proposal_text(*each)}")
    for name, row in flying:
        click.echo(f"in flight: {row.id} {name}: {row.kind} {row.target}, until {time_text(row.expires_at)}")
    pretends = [] if pending else [event for event in rounds if event.data.mode == "dry-run"]
    if not waiting and not flying:
        is_all = pending or len(pretends) == len(rounds)
        click.echo("nothing waits for approval" + ("" if is_all else " or is in flight"))
    for event in pretends:
        left = event.data.maintenance.bundles_left.outcomes if event.data.maintenance else {}
        flown = event.data.candidates.outcomes.get("in-flight", 0) + left.get("in-flight", 0)
        moved = event.data.shadow.count if event.data.shadow else 0
        click.echo(
            f"{event.cluster}: dry-run, its actions are only pretended and none is listed here"
            + (f"; bundles with such an action in flight: {flown}" if flown else "")
            + (f"; {counted(moved, 'bundle')} count as moved" if moved else "")
            + f": see `trimtab actions tail --dry-run --no-follow --cluster {event.cluster}`"
        )


@actions_command.command(
    "why", short_help="Show why an action was decided.", epilog=example("trimtab actions why 4f0021f6")
)
@settings_options
@format_option("JSON and YAML have the data of the action and of its round (null if the round's is gone).")
@click.argument("id", metavar="ID")
def why_command(settings: Settings, id: str, form: str) -> None:  # noqa: A002  the option's name
    """Show why an action was decided, and what was held back in its round; the first 6 characters of its id are enough."""
    if len(id) < ID_MIN:
        raise WrongUse(f"{id!r}: give at least the first {ID_MIN} characters of the action's id")
    action, appended_ms = _find(settings, id)
    summary = _summary_of(settings, action, appended_ms)
    missing = f"The summary of its round is not on {settings.topics.audit} (any more), so it is not known what else the round looked at."
    if form == "table":
        answer = _answer_to(settings, action, appended_ms) if action.data.proposal else None
        click.echo(why_text(action, summary, missing=missing, answer=answer), nl=False)
    else:
        tree = msgspec.to_builtins({"id": action.id, "action": action.data, "round": summary})
        click.echo(render(tree, form), nl=False)


def _find(settings: Settings, beginning: str) -> tuple[Action, int]:
    """The action whose id has this beginning, and when it was published, in ms; raises ``NotFound``, ``WrongUse`` or ``Refused``."""
    topics = (settings.topics.actions, settings.topics.actions_dry_run)
    found: dict[str, tuple[Action, int]] = {}
    for topic in topics:
        for record in records_of(settings, topic, "earliest"):
            if record.value is not None and has_id(record.value, beginning):
                try:
                    action = read_action(record.value)
                except UnreadableEvent as error:
                    raise error.at(topic, record.offset) from error
                found[action.id] = (action, record.timestamp)
    if not found:
        raise NotFound(
            f"no action {beginning} on {' or '.join(topics)}: it may be older than the topics keep, or of another "
            "controller's topics; `trimtab actions tail --from earliest --no-follow` lists all actions, with --dry-run those of the dry-run"
        )
    if len(found) > 1:
        raise WrongUse(f"{beginning} is the beginning of several ids: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _summary_of(settings: Settings, action: Action, appended_ms: int) -> RoundSummary | None:
    """The summary of the action's round, looked for at the time where it should be, then on the whole topic. Raises ``Refused``."""
    audit, number = settings.topics.audit, action.data.round
    looks: tuple[tuple[Begin, int | None], ...] = (
        (max(0, appended_ms - _AROUND_MS), appended_ms + _AROUND_MS),
        ("earliest", None),
    )
    for begin, until_ms in looks:
        for record in records_of(settings, audit, begin):
            if until_ms is not None and record.timestamp > until_ms:
                break
            value = record.value or b""
            if is_round_of(value, cluster=action.cluster, number=number):
                try:
                    return read_round(value).data
                except UnreadableEvent as error:
                    raise error.at(audit, record.offset) from error
    return None


def _answer_to(settings: Settings, proposal: Action, appended_ms: int) -> str | None:
    """What became of a proposal, from the first round after it that says so; None while it is open. Raises ``Refused``."""
    records = records_of(settings, settings.topics.audit, max(0, appended_ms - _AROUND_MS))
    named = (record for record in records if proposal.id.encode() in (record.value or b""))
    for event in rounds_in(named):
        approval, number = event.data.approval, event.data.round
        for row in [] if approval is None else approval.answers:
            if row.proposal_id == proposal.id:
                return answer_text(row, number)
        if approval is not None and proposal.id in approval.expired:
            return f"it ended without an answer in round {number}"
    return None


def answer_text(row: ApprovalRow, round_: int) -> str:
    """A person's answer to a proposal, and what became of it."""
    said = f"{row.verdict} by {row.who} in round {round_} ({row.why})"
    if row.action_id is not None:
        return f"{said}, carried out as action {row.action_id}"
    return said if row.outcome == row.verdict else f"{said}, but no action was published: {row.detail}"


def tail_text(action: Action, *, epoch: int | None, stale: bool) -> str:
    """What an action does, and why, in two lines."""
    marks = ["proposal" if action.data.proposal else "dry-run"] if action.data.dry_run else []
    marks += [f"epoch {epoch} is stale: do not obey it"] if stale else []
    marked = f" [{', '.join(marks)}]" if marks else ""
    return f"{time_text(action.time, is_exact=True)} {action.cluster} {_headline(action)}{marked} ({action.id})\n    {action.data.reason}\n"


def leader_text(leader: ReadEnvelope[LeaderData]) -> str:
    """The new leader, in a line."""
    data = leader.data
    return f"{time_text(leader.time)} controller {data.controller} has a new leader, epoch {data.epoch}\n"


def _headline(action: Action) -> str:
    """Kind, target and, if the kind has them, the source and destination broker."""
    data = action.data
    way = ""
    if data.source_broker is not None:
        way = f" {data.source_broker} -> {data.destination_broker or 'where placement chooses'}"
    elif data.broker is not None:
        way = f" at {data.broker}"
    return f"{action.kind} {action.subject}{way}"


def why_text(action: Action, summary: RoundSummary | None, *, missing: str, answer: str | None = None) -> str:
    """The reason, the evidence, both sides before and after the action, and what else the round looked at.

    ``missing`` is the text for a round whose summary was not found, ``answer`` what became of a proposal.
    """
    data = action.data
    obeyed = " (dry-run: it is not carried out)" if data.dry_run else ""
    if data.proposal:
        obeyed = f" (a proposal: {answer or 'carried out only after `trimtab approve`'})"
    requires = [f"{name} is {value_text(value)}" for name, value in sorted(data.precondition.items())]
    lines = [
        _headline(action),
        data.reason,
        "",
        f"decided   in round {data.round} of {action.cluster}, which ended at {time_text(action.time, is_exact=True)}",
        f"by        {data.policy}, {data.trigger}",
        f"until     {time_text(data.expires_at)}{obeyed}",
        *([f"approved  proposal {data.proposal_id}"] if data.proposal_id else []),
        f"requires  {', '.join(requires) or 'nothing'}",
        f"id        {action.id}",
        "",
        "Evidence",
        *table_lines([(name, evidence_text(name, value)) for name, value in sorted(data.evidence.items())]),
        *_sides(action, summary),
    ]
    if summary is None:
        return text_of([*lines, "", missing])
    lines += ["", f"The round: {summary.reason}", *circumstances_lines(summary)]
    lines += looked_at_lines(summary, but=action.subject)
    if data.proposal:
        waiting = [] if summary.approval is None else summary.approval.open
        others = [row.id for row in waiting if row.round == data.round and row.id != action.id]
        named = f"proposals of the round: {all_names(others, len(others)) or 'none'}"
    else:
        others = [each for each in summary.actions if each != action.id]
        named = f"actions of the round: {all_names(others, summary.actions_count - 1) or 'none'}"
    return text_of([*lines, "", f"Other {named}"])


def _sides(action: Action, summary: RoundSummary | None) -> Iterator[str]:
    """The load after the action, of brokers or of the children of a split; for brokers the load before, from the summary, too.

    What a broker was measured at is not what a dry-run compares with once it has pretended to move bundles: it is not shown then.
    """
    brokers = {"source": action.data.source_broker, "destination": action.data.destination_broker}
    loads = {} if summary is None else {load.broker: load for load in summary.brokers}
    shadow = "" if summary is None else shadow_note(summary.shadow)
    rows = []
    for side, expected in sorted(
        action.data.expected.items(), key=lambda side: (_SIDES.get(side[0], 2), side[0])
    ):
        broker = brokers.get(side)
        for name, after in sorted(expected.items()) if isinstance(expected, Mapping) else ():
            before = getattr(loads.get(broker or ""), name, None)
            shown = "" if broker is None or shadow else "unknown" if before is None else value_text(before)
            rows.append((f"{side} {broker}" if broker else side, name, shown, value_text(after)))
    if rows:
        yield from ("", "Expected load, after this action and the earlier actions of its round")
        yield from table_lines([("", "", "" if shadow else "before", f"after{shadow}"), *rows])
