"""Puts published unloads, splits and proposals into the memory where the round that decided them is not decided again as it was.

The brokers' loads of that time are not known, so such an unload promises nothing: it gets a verdict, but nothing says
whether it helped.
"""

from collections.abc import Iterable, Mapping

import msgspec

from policies.shedding.view import Traffic
from state.engine.closing import Closing
from state.engine.ledger import Child, Decision
from state.engine.memory import Header, ProposalRecord
from state.outputs import Output, Split, Unload, moment_ms
from state.outputs.types import UNLOAD_TYPE
from state.pulsar import drain, shadow
from state.pulsar.approvals import children_of
from state.pulsar.memory import Fleet

_UNLOADS: msgspec.json.Decoder[Unload | Split] = msgspec.json.Decoder(Unload)
_SPLITS: msgspec.json.Decoder[Unload | Split] = msgspec.json.Decoder(Split)


def restore(
    closing: Closing,
    header: Header,
    fleet: Fleet,
    published: Iterable[Output],
    decided: Mapping[str, Decision],
) -> None:
    """Remember what was published, in its order. ``decided`` has, by id, the decisions that are known as they were made.

    Changes ``header`` and ``fleet``.
    """
    for output in published:
        action = (_UNLOADS if output.type == UNLOAD_TYPE else _SPLITS).decode(output.data)
        if action.proposal is True:
            header.proposals.append(_proposal(output, action))
            continue
        if header.last_mode == "dry-run" and not action.dry_run:
            header.ledger.forget_dry_run()
        header.last_mode = "dry-run" if action.dry_run else "act"
        known = decided.get(output.id)
        header.ledger.record([_decision(closing, output, action) if known is None else known])
        if isinstance(action, Unload) and shadow.is_on(closing, header.facts):
            fleet.shadow = shadow.record(fleet.shadow, [action])


def _proposal(output: Output, action: Unload | Split) -> ProposalRecord:
    return ProposalRecord(
        id=output.id,
        kind="unload" if isinstance(action, Unload) else "split",
        bundle=action.bundle,
        source=_source(action),
        destination=_destination(action),
        round=action.round,
        expires_ms=moment_ms(action.expires_at),
        data=output.data,
    )


def _decision(closing: Closing, output: Output, action: Unload | Split) -> Decision:
    expires_ms = moment_ms(action.expires_at)
    is_unload = isinstance(action, Unload)
    return Decision(
        id=output.id,
        kind="unload" if is_unload else "split",
        bundle=action.bundle,
        source=_source(action),
        destination=_destination(action),
        children=_children(action),
        decided_ms=output.time_ms,
        expires_ms=expires_ms,
        until_ms=expires_ms + closing.settings.pulsar.rounds.max_report_age_ms,
        dry_run=action.dry_run,
        is_watched=not action.dry_run,
        is_leaving=is_unload,
        traffic=_traffic(action) if is_unload else None,
        is_drain=action.policy == drain.POLICY,
    )


def _source(action: Unload | Split) -> str:
    return action.source_broker if isinstance(action, Unload) else action.broker


def _destination(action: Unload | Split) -> str | None:
    return action.destination_broker if isinstance(action, Unload) else None


def _children(action: Unload | Split) -> tuple[Child, ...]:
    return tuple(children_of(action)) if isinstance(action, Split) else ()


def _traffic(action: Unload | Split) -> Traffic:
    evidence = action.evidence
    return Traffic(float(evidence["bundle_messages_per_s"]), float(evidence["bundle_bytes_per_s"]))
