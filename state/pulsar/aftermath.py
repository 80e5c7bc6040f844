"""Records the decided actions of a round in the ledger."""

from collections.abc import Sequence

from policies.shedding.view import RoundView, Side, Traffic
from state.engine.closing import Closing
from state.engine.ledger import ActionKind, Child, Decision, Ledger
from state.outputs import Output, Split, Unload
from state.pulsar import drain
from state.pulsar.approvals import children_of
from state.pulsar.promises import Promised, promised
from state.pulsar.tables import Loads


def remember(
    ledger: Ledger,
    closing: Closing,
    made: Sequence[tuple[Output, Unload | Split]],
    loads: Loads,
    view: RoundView,
) -> None:
    """Record the actions that were decided on a view, each with its encoded output, in their order."""
    ledger.record(
        [
            _unload(output, action, closing, loads, view)
            if isinstance(action, Unload)
            else _decision(output, closing, "split", source=action.broker, children=children_of(action))
            for output, action in made
        ]
    )


def _unload(output: Output, unload: Unload, closing: Closing, loads: Loads, view: RoundView) -> Decision:
    is_drain = unload.policy == drain.POLICY
    sides: dict[Side, str | None] = {"source": unload.source_broker, "destination": unload.destination_broker}
    return _decision(
        output,
        closing,
        "unload",
        source=unload.source_broker,
        destination=unload.destination_broker,
        traffic=Traffic(
            float(unload.evidence["bundle_messages_per_s"]), float(unload.evidence["bundle_bytes_per_s"])
        ),
        before={side: loads.traffic_of(broker) for side, broker in sides.items() if broker is not None},
        promise=None if is_drain else promised(unload, loads, view),
        is_drain=is_drain,
    )


def _decision(
    output: Output,
    closing: Closing,
    kind: ActionKind,
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
        id=output.id,
        kind=kind,
        bundle=output.subject,
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
        dry_run=output.dry_run,
        is_watched=not output.dry_run,
        is_leaving=kind == "unload",
        is_drain=is_drain,
    )
