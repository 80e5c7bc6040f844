"""Why a bundle or a broker is left alone: what the controller knows of it at a moment, found by replaying what it was given until then.

The controller is the one that runs live. It starts with an empty memory, so what it was given before the replay begins is not known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from state.controller import Controller
from state.engine.closing import Identity
from state.engine.encoding import decode_header
from state.engine.ledger import Decision
from state.engine.store import DictStore
from state.events import Control, Event
from state.outputs import CandidateRow, ExaminedRow, Output, RoundSummary, rfc3339
from state.outputs.types import ROUND_TYPE
from state.pulsar.encoding import decode_fleet
from state.pulsar.remembered import RememberedBroker, RememberedBundle, remembered_broker, remembered_bundle
from state.settings import OverlayError, PulsarSettings, SettingsSource
from state.upkeep import BrokerUpkeep
from streaming.operators.remedies import examined_remedy_of, remedy_of
from streaming.operators.round_text import examined_text
from streaming.operators.text import counts_text, value_text

_SUMMARY = msgspec.json.Decoder(RoundSummary)
_SHOWN_BUNDLES = 10
_SHOWN_DECISIONS = 10
_MS = 1000


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why the bundle or broker is left alone."""

    outcome: str
    detail: str
    remedy: str
    """What would have to change; empty where nothing keeps it."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle or a broker in one cluster."""

    subject: str
    kind: str
    """`bundle` or `broker`."""
    cluster: str
    round: int
    as_of: str
    """End of the last round that had closed."""
    replayed_from: str
    """Time of the first event that was replayed."""
    rounds_count: int
    """Rounds that were replayed."""
    knows: list[tuple[str, str]]
    reasons: list[Reason]
    history: dict[str, int]
    """How often the subject, or a bundle's broker, had each outcome in the rounds that were replayed."""
    warnings: list[str]


@dataclass(slots=True)
class _Cluster:
    """A cluster that is replayed."""

    controller: Controller
    store: DictStore
    first_ms: int
    last: RoundSummary | None = None
    rounds_count: int = 0
    history: Counter[str] = field(default_factory=Counter)
    owner: str = ""
    """The bundle's broker, as the summaries last had it."""
    overlays: dict[str, bytes] = field(default_factory=dict)
    """Settings of the control events by their ids."""


class Explainer:
    """Takes the events until the moment that is asked about."""

    def __init__(self, subject: str, *, identity: Identity, settings: SettingsSource) -> None:
        self._subject, self._identity, self._settings = subject, identity, settings
        self._is_bundle = "/" in subject
        self._clusters: dict[str, _Cluster] = {}

    @property
    def clusters(self) -> list[str]:
        """The clusters that were replayed, by name."""
        return sorted(self._clusters)

    @property
    def has_rounds(self) -> bool:
        """Whether a round has ended."""
        return any(cluster.rounds_count for cluster in self._clusters.values())

    def take(self, name: str, event: Event) -> None:
        """Replay an event."""
        cluster = self._clusters.get(name)
        if cluster is None:
            store = DictStore()
            controller = Controller(name, store, identity=self._identity, settings=self._settings)
            cluster = self._clusters[name] = _Cluster(controller, store, event.time_ms)
        if isinstance(event, Control):
            cluster.overlays[event.id] = event.overlay
        else:
            cluster.first_ms = min(cluster.first_ms, event.time_ms) if cluster.rounds_count else event.time_ms
        self._note_outputs(cluster, cluster.controller.step(event).outputs)

    def explain(self) -> list[Explanation]:
        """One for each cluster that knows the subject."""
        found = (self._explain_cluster(name, cluster) for name, cluster in sorted(self._clusters.items()))
        return [each for each in found if each is not None]

    def _note_outputs(self, cluster: _Cluster, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if output.type != ROUND_TYPE:
                continue
            summary = _SUMMARY.decode(output.data)
            cluster.last, cluster.rounds_count = summary, cluster.rounds_count + 1
            rows = [each for each in summary.candidates.heaviest if each.bundle == self._subject]
            if rows:
                cluster.owner = rows[0].broker
            cluster.history.update(each.detail for each in rows)
            broker = cluster.owner if self._is_bundle else self._subject
            cluster.history.update(
                f"{each.high_broker} {each.detail}"
                for each in summary.examined.heaviest
                if each.high_broker == broker
            )

    def _explain_cluster(self, name: str, cluster: _Cluster) -> Explanation | None:
        summary = cluster.last
        cluster.controller.commit()
        header, fleet = cluster.store.header(), cluster.store.fleet()
        if summary is None or summary.system != "pulsar" or header is None or fleet is None:
            return None
        pulsar = self._pulsar(name, cluster, summary)
        arguments = decode_header(header), decode_fleet(fleet), pulsar, self._subject
        end_ms = _ms(summary.end)
        if self._is_bundle:
            bundle = remembered_bundle(*arguments, end_ms=end_ms)
            if bundle is None:
                return None
            knows = list(_of_bundle(bundle, summary, pulsar))
            reasons = list(_why_bundle(self._subject, bundle, summary, pulsar))
        else:
            broker = remembered_broker(*arguments, end_ms=end_ms)
            if broker is None:
                return None
            knows = list(_of_broker(self._subject, broker, summary, pulsar))
            reasons = list(_why_broker(self._subject, broker, summary))
        return Explanation(
            subject=self._subject,
            kind="bundle" if self._is_bundle else "broker",
            cluster=name,
            round=summary.round,
            as_of=summary.end,
            replayed_from=rfc3339(cluster.first_ms),
            rounds_count=cluster.rounds_count,
            knows=knows,
            reasons=reasons,
            history=dict(cluster.history.most_common()),
            warnings=list(_warnings(cluster, pulsar, end_ms)),
        )

    def _pulsar(self, name: str, cluster: _Cluster, summary: RoundSummary) -> PulsarSettings:
        """The settings that the round obeyed."""
        control = summary.control
        if control is not None and control.problem is None and control.id in cluster.overlays:
            try:
                return self._settings.overlaid(name, cluster.overlays[control.id]).pulsar
            except OverlayError:
                pass  # the round obeyed the settings without the overlay, too
        return self._settings.base(name).pulsar


def _of_bundle(
    bundle: RememberedBundle, summary: RoundSummary, pulsar: PulsarSettings
) -> Iterator[tuple[str, str]]:
    inbound, outbound, bytes_in, bytes_out = bundle.traffic
    yield "broker", bundle.owner or "forgotten: it has not reported for too long"
    yield (
        "traffic",
        (
            f"{value_text(inbound)} messages/s in, {value_text(outbound)} out; {value_text(bytes_in)} bytes/s in, "
            f"{value_text(bytes_out)} out; the mean of {bundle.samples_count} of {pulsar.bundle_average_samples} samples"
        ),
    )
    yield "last listed", rfc3339(bundle.last_ms)
    if bundle.owner_group or bundle.namespace_group:
        yield (
            "group",
            f"{bundle.namespace_group or 'default'}, its broker's is {bundle.owner_group or 'default'}",
        )
    if bundle.shadow_broker:
        yield "counts at", f"{bundle.shadow_broker}, where this dry-run has moved it"
    if bundle.owner:
        yield from _usage(bundle.owner, summary)
    yield from _decisions(bundle.decisions, pulsar)


def _of_broker(
    name: str, broker: RememberedBroker, summary: RoundSummary, pulsar: PulsarSettings
) -> Iterator[tuple[str, str]]:
    yield "last report", rfc3339(broker.last_ms)
    yield from _usage(name, summary)
    if broker.group:
        yield "group", broker.group
    yield from (
        (field_, value_text(value)) for field_, value in broker.policy_memory.items() if _is_plain(value)
    )
    held = Counter(each or "may move" for each in broker.masks)
    yield "bundles", f"{len(broker.bundles)}: {counts_text(dict(held.most_common()))}"
    rows = zip(broker.bundles, broker.messages_per_s, broker.masks, strict=True)
    for bundle, messages, mask in list(rows)[:_SHOWN_BUNDLES]:
        yield "", f"{bundle}: {value_text(messages)} messages/s, {mask or 'may move'}"
    yield from _decisions(broker.decisions, pulsar)


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str)


def _usage(broker: str, summary: RoundSummary) -> Iterator[tuple[str, str]]:
    load = next((each for each in summary.brokers if each.broker == broker), None)
    if load is None:
        yield (
            "usage",
            f"{broker} is not among the {len(summary.brokers)} heaviest brokers of the round, or did not report",
        )
        return
    mean = "" if summary.usage is None else f", the mean is {summary.usage.mean_points:.1f}"
    parts = ", ".join(
        f"{name} {value_text(value)}" for name, value in load.resources.items() if value != "not-measured"
    )
    yield "usage", f"{broker} is at {load.usage_points:.1f} %{mean} ({parts})"


def _decisions(decisions: Iterable[Decision], pulsar: PulsarSettings) -> Iterator[tuple[str, str]]:
    for each in list(decisions)[-_SHOWN_DECISIONS:]:
        ended = each.verdict.outcome if each.verdict else each.result or "no result yet"
        where = f" to {each.destination or 'where Pulsar chooses'}" if each.kind == "unload" else ""
        yield (
            each.kind,
            f"{each.bundle}{where}, decided {rfc3339(each.decided_ms)}: {ended}; it rests until {rfc3339(_rests_until_ms(each, pulsar))}"
            + (" (dry-run)" if each.dry_run else ""),
        )


def _why_bundle(
    name: str, bundle: RememberedBundle, summary: RoundSummary, pulsar: PulsarSettings
) -> Iterator[Reason]:
    """Every reason that keeps a bundle where it is; those of the whole cluster come first."""
    yield from _why_cluster(summary)
    if bundle.owner is not None:
        yield from _why_apart(bundle.owner, bundle.owner_upkeep)
    if bundle.unload_mask:
        yield _reason(bundle.unload_mask, _mask_detail(bundle, pulsar))
    own = next((each for each in summary.candidates.heaviest if each.bundle == name), None)
    if own is not None:
        yield from _why_candidate(own, bundle.unload_mask)
    elif summary.candidates.count > len(summary.candidates.heaviest):
        yield Reason(
            outcome="not-named",
            detail=f"the round looked at {summary.candidates.count} bundles and names only the "
            f"{len(summary.candidates.heaviest)} heaviest",
            remedy="",
        )
    if bundle.owner is not None:
        yield from (
            _why_examined(each, summary.policy)
            for each in summary.examined.heaviest
            if each.high_broker == bundle.owner
        )
        if not any(each.high_broker == bundle.owner for each in summary.examined.heaviest):
            low = any(each.low_broker == bundle.owner for each in summary.examined.heaviest)
            said = (
                "would receive bundles, not give any"
                if low
                else "is not among those that the policy looked at"
            )
            yield Reason(
                outcome="not-examined",
                detail=f"{bundle.owner} {said}",
                remedy="its broker has to be among the most used ones",
            )


def _mask_detail(bundle: RememberedBundle, pulsar: PulsarSettings) -> str:
    """Why the bundle may not be moved, and until when if that is known."""
    last = next((each for each in reversed(bundle.decisions) if each.is_resting), None)
    if last is not None and bundle.unload_mask == "in-flight":
        return f"no result of its {last.kind} has come; it expires at {rfc3339(last.expires_ms)}"
    if last is not None and bundle.unload_mask == "cooldown":
        return f"it rests until {rfc3339(_rests_until_ms(last, pulsar))}"
    if bundle.unload_mask == "maintenance":
        return "its namespace is under maintenance"
    return "it may not be moved"


def _why_apart(broker: str, upkeep: BrokerUpkeep) -> Iterator[Reason]:
    """Why a broker takes no part in balancing because an operator said so."""
    if upkeep == "drained":
        yield _reason("drained", f"{broker} is drained: all its bundles leave it, and it receives none")
    elif upkeep == "maintenance":
        yield _reason("maintenance", f"{broker} is under maintenance: it is neither source nor destination")


def _rests_until_ms(decision: Decision, pulsar: PulsarSettings) -> int:
    owner = pulsar.guards if decision.kind == "unload" else pulsar.split
    return decision.decided_ms + round(_MS * owner.bundle_cooldown_s)


def _why_candidate(row: CandidateRow, mask: str) -> Iterator[Reason]:
    if row.outcome == "acted":
        yield Reason(outcome="acted", detail="it was unloaded in this round", remedy="")
    elif row.outcome != mask:
        yield _reason(row.outcome, row.detail)


def _why_broker(name: str, broker: RememberedBroker, summary: RoundSummary) -> Iterator[Reason]:
    yield from _why_cluster(summary)
    yield from _why_apart(name, broker.upkeep)
    if broker.is_excluded:
        yield Reason(
            outcome="excluded-broker",
            detail="excluded_brokers names it: it is neither source nor destination",
            remedy="it has to be removed from excluded_brokers",
        )
    if broker.is_unsettled:
        yield _reason("unsettled-broker", "it takes part in an unload that the reports do not show yet")
    if name in summary.brokers_missing or name in summary.brokers_failed:
        yield Reason(
            outcome="missing",
            detail=summary.brokers_failed.get(name, "it did not report in the round"),
            remedy="it has to report",
        )
    rows = [each for each in summary.examined.heaviest if name in {each.high_broker, each.low_broker}]
    yield from (_why_examined(each, summary.policy) for each in rows)
    if not rows:
        yield Reason(
            outcome="not-examined",
            detail="it is not among those that the policy looked at",
            remedy="it has to be among the most or the least used ones",
        )


def _why_examined(row: ExaminedRow, policy: str) -> Reason:
    numbers = ", ".join(f"{name} {value_text(value)}" for name, value in row.evidence.items())
    remedy = examined_remedy_of(row.outcome, policy)
    return Reason(
        outcome=row.outcome,
        detail=f"{examined_text(row)}: {row.detail}" + (f" ({numbers})" if numbers else ""),
        remedy=remedy,
    )


def _why_cluster(summary: RoundSummary) -> Iterator[Reason]:
    if summary.outcome != "decided":
        yield Reason(outcome=summary.outcome, detail=summary.reason, remedy="the policies have to run again")
    if summary.paused:
        yield _reason("paused", "the cluster is paused")
    if summary.failing_since is not None:
        yield _reason("failing", f"unloads are held since {summary.failing_since}")
    if summary.mode == "dry-run":
        yield Reason(
            outcome="dry-run",
            detail="decisions go to the dry-run topic, nothing is carried out",
            remedy='mode has to be "act"',
        )


def _reason(outcome: str, detail: str) -> Reason:
    return Reason(outcome=outcome, detail=detail, remedy=remedy_of(outcome))


def _warnings(cluster: _Cluster, pulsar: PulsarSettings, end_ms: int) -> Iterator[str]:
    """What the replay is too short for."""
    replayed_s = (end_ms - cluster.first_ms) / _MS
    short = [
        f"{what} ({needed_s:g} s)"
        for what, needed_s in (
            ("cooldowns", pulsar.guards.bundle_cooldown_s),
            ("the hourly budget", 3600.0 if pulsar.guards.max_unloads_per_hour_count != 0 else 0.0),
            ("averages of traffic", pulsar.bundle_average_samples * pulsar.rounds.length_s),
        )
        if replayed_s < needed_s
    ]
    if short:
        yield (
            f"only {replayed_s:.0f} s were replayed; what was decided before {rfc3339(cluster.first_ms)} is not known here, "
            f"and may matter for {', '.join(short)}"
        )


def _ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * _MS)
