"""Records the decided actions of a round in the ledger."""

from collections.abc import Sequence

import msgspec

from policies.shedding.view import RoundView, Side, Traffic
from state.engine.closing import Closing
from state.engine.ledger import ActionKind, Child, Decision, Ledger
from state.outputs import Output, Split, Unload
from state.pulsar import drain
from state.pulsar.approvals import children_of
from state.pulsar.closing import Decided
from state.pulsar.promises import Promised, promised
from state.pulsar.tables import Loads


def remember(
    ledger: Ledger,
    closing: Closing,
    decided: Decided,
    loads: Loads,
    view: RoundView,
    actions: list[Output],
) -> None:
    """Record the actions that were decided on a view; ``actions`` are the outputs of the unloads, then those of the splits."""
    unloads, splits_ = decided.unloads, decided.splits
    made = [
        _decision(
            "unload",
            action,
            closing,
            source=unload.source_broker,
            destination=unload.destination_broker,
            traffic=Traffic(
                float(unload.evidence["bundle_messages_per_s"]), float(unload.evidence["bundle_bytes_per_s"])
            ),
            before=_before(unload, loads),
            promise=None if unload.policy == drain.POLICY else promised(unload, loads, view),
            is_drain=unload.policy == drain.POLICY,
        )
        for action, unload in zip(actions, unloads, strict=False)
    ]
    cuts = actions[len(unloads) :]
    approved = decided.answers.cuts
    made += [
        _decision("split", action, closing, source=cut.source, children=cut.children)
        for action, cut in zip(cuts, approved, strict=False)
    ]
    if splits_ is not None:
        made += [
            _decision(
                "split",
                action,
                closing,
                source=splits_.broker_of(cut.row),
                children=children_of(msgspec.json.decode(action.data, type=Split)),
            )
            for action, cut in zip(cuts[len(approved) :], splits_.admitted, strict=True)
        ]
    ledger.record(made)


def _before(unload: Unload, loads: Loads) -> dict[Side, Traffic]:
    return {side: loads.traffic_of(broker) for side, broker in _sides(unload)}


def _sides(unload: Unload) -> list[tuple[Side, str]]:
    found: list[tuple[Side, str]] = [("source", unload.source_broker)]
    return (
        found if unload.destination_broker is None else [*found, ("destination", unload.destination_broker)]
    )


def _decision(
    kind: ActionKind,
    action: Output,
    closing: Closing,
    *,
    source: str,
    destination: str | None = None,
    children: Sequence[Child] = (),
    traffic: Traffic | None = None,
    before: dict[Side, Traffic] | None = None,
    promise: Promised | None = None,
    is_drain: bool = False,
) -> Decision:
    return Decision(
        id=action.id,
        kind=kind,
        bundle=action.subject,
        source=source,
        destination=destination,
        children=tuple(children),
        traffic=traffic,
        before=before or {},
        before_points=promise.before_points if promise else {},
        promised_points=promise.change_points if promise else {},
        decided_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        # By then, an action that was carried out just before it expired has a result and shows in the next load reports.
        until_ms=closing.expires_ms + closing.settings.pulsar.rounds.max_report_age_ms,
        dry_run=action.dry_run,
        is_watched=not action.dry_run,
        is_leaving=kind == "unload",
        is_drain=is_drain,
    )
