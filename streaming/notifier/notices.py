"""Makes notices from actions and round summaries. Pure: no topic, no clock.

For a condition that lasts (a hold, a finding) every round gives a notice with the same key; the outlet decides how often it is sent. A
summary names at most 100 rows of each kind, so a notice may say that there are more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec

from policies.shedding.registry import POLICIES
from state.outputs import INFORMATION, Finding, JudgedRow
from state.outputs.types import ACTION_PREFIX, ROUND_TYPE
from streaming.contract.envelope import ReadEnvelope, read_envelope
from streaming.settings.receivers import NoticeKind

Severity = Literal["info", "warning", "critical"]

_HOLDS = frozenset({"anti-affinity", "budget", "quiet-hours", "restricted-split", "two-balancers"}) | {
    outcome for policy in POLICIES for outcome in policy.outcomes if policy.text_of(outcome).is_hold
}
"""Outcomes of actions that were wanted and held back for a reason beyond the bundle; a pause and a failing cluster have
fields of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that people should know."""

    kind: NoticeKind
    cluster: str
    time_ms: int
    title: str
    text: str
    severity: Severity = "info"
    key: str = ""
    """The same in every round for a condition that lasts; empty for what happens once."""
    has_ended: bool = False
    dry_run: bool = False
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordNotices:
    """The notices of a record, and where it comes from."""

    source: str
    cluster: str
    notices: tuple[Notice, ...]
    is_round: bool
    """Whether it is a summary: a lasting condition that is not among its notices has ended."""


class UnreadableRecord(Exception):
    """A record that is not an event of trimtab."""


class _Outcomes(msgspec.Struct, frozen=True):
    outcomes: dict[str, int] = {}


class _Rows(msgspec.Struct, frozen=True):
    count: int = 0
    heaviest: list[JudgedRow] = []


class _Findings(msgspec.Struct, frozen=True):
    count: int = 0
    heaviest: list[Finding] = []


class _Control(msgspec.Struct, frozen=True):
    who: str = ""
    why: str = ""


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    end: str
    outcome: str
    reason: str
    paused: bool = False
    control: _Control | None = None
    failing_since: str | None = None
    splits_failing_since: str | None = None
    examined: _Outcomes = _Outcomes()
    candidates: _Outcomes = _Outcomes()
    splits: _Outcomes = _Outcomes()
    judged: _Rows | None = None
    findings: _Findings = _Findings()


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    dry_run: bool
    proposal: bool = False
    bundle: str | None = None
    source_broker: str | None = None
    destination_broker: str | None = None


_round = msgspec.json.Decoder(_Round).decode
_action = msgspec.json.Decoder(_Action).decode


def read(value: bytes) -> RecordNotices:
    """Read a record of a topic of actions or of the audit topic. Raises ``UnreadableRecord``."""
    try:
        head = read_envelope(value)
        if head.type.startswith(ACTION_PREFIX):
            found: tuple[Notice, ...] = (_decision(head, _action(head.data)),)
        elif head.type == ROUND_TYPE:
            found = tuple(_of_round(head.cluster, _round(head.data)))
        else:
            found = ()
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableRecord(f"not a valid event: {error}") from error
    return RecordNotices(
        source=head.source, cluster=head.cluster, notices=found, is_round=head.type == ROUND_TYPE
    )


def _decision(head: ReadEnvelope[msgspec.Raw], action: _Action) -> Notice:
    kind = head.type.removeprefix(ACTION_PREFIX).rpartition(".")[0]
    if action.proposal:
        return Notice(
            kind="proposals", cluster=head.cluster, time_ms=_ms(head.time), title=f"{kind} {head.subject} waits for approval",
            text=f"{action.reason}\n`trimtab approve {head.id} --why …`", severity="warning",
            labels={"action": kind, "action_id": head.id},
        )  # fmt: skip
    would = "would be decided in act: " if action.dry_run else ""
    return Notice(
        kind="decisions",
        cluster=head.cluster,
        time_ms=_ms(head.time),
        title=f"{kind} {head.subject}",
        text=f"{would}{action.reason}",
        dry_run=action.dry_run,
        labels={"action": kind, "action_id": head.id},
    )


def _of_round(cluster: str, data: _Round) -> Iterator[Notice]:
    time_ms = _ms(data.end)
    for key, severity, title, text in _holds(data):
        yield Notice(
            kind="holds", cluster=cluster, time_ms=time_ms, title=title, text=text, severity=severity, key=f"hold/{key}",
            labels={"reason": key},
        )  # fmt: skip
    for each in data.findings.heaviest:
        yield Notice(
            kind="findings", cluster=cluster, time_ms=time_ms, title=f"{each.kind} {each.subject}", text=each.advice,
            severity="info" if each.kind in INFORMATION else "warning", key=f"finding/{each.kind}/{each.subject}", labels={"reason": each.kind},
        )  # fmt: skip
    yield from _failures(cluster, time_ms, data)


def _holds(data: _Round) -> Iterator[tuple[str, Severity, str, str]]:
    if data.paused:
        who = data.control.who if data.control else ""
        why = data.control.why if data.control else ""
        yield "paused", "info", "paused", f"{who or 'somebody'}: {why or 'no reason given'}"
    for kind, since in (("unloads", data.failing_since), ("splits", data.splits_failing_since)):
        if since is not None:
            text = (
                f"too many of the last {kind} failed or had no effect: mend the cause, then `trimtab resume`"
            )
            yield f"failing-{kind}", "critical", f"{kind} are held since {since}", text
    if data.outcome == "no-quorum":
        yield "no-quorum", "warning", "too few brokers report", data.reason
    counted = [data.examined.outcomes, data.candidates.outcomes, data.splits.outcomes]
    for reason in sorted(_HOLDS):
        count = sum(each.get(reason, 0) for each in counted)
        if count:
            text = "`trimtab explain BROKER` says what would have to change"
            yield reason, "warning", f"{count} held back: {reason}", text


def _failures(cluster: str, time_ms: int, data: _Round) -> Iterator[Notice]:
    if data.outcome == "internal-error":
        yield Notice(
            kind="failures", cluster=cluster, time_ms=time_ms, title="a round ended in an internal error", text=data.reason,
            severity="critical", key="failure/internal-error", labels={"reason": "internal-error"},
        )  # fmt: skip
    for row in data.judged.heaviest if data.judged is not None else ():
        if row.outcome == "good":
            continue
        where = f" from {row.brokers['source']}" if "source" in row.brokers else ""
        yield Notice(
            kind="failures", cluster=cluster, time_ms=time_ms, title=f"{row.kind} {row.bundle}{where}: {row.outcome}",
            text=f"`trimtab actions why {row.id}` says why it was decided", severity="warning",
            labels={"reason": row.outcome, "action_id": row.id},
        )  # fmt: skip


def _ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)
