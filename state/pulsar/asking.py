"""Which actions of a round have to be proposed, and which brokers already wait for a person.

While approval is required, an unload or split is proposed unless a standing approval covers it. A proposal spends nothing. While it is
open, nothing more is proposed for its source and destination: loads stay as they are, so the next rounds would propose one bundle after
another, until a broker's whole traffic is proposed. Proposals of one round are one plan, and may share their brokers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from state.approval_settings import StandingApproval
from state.engine.holds import Hold
from state.engine.memory import ProposalRecord
from state.events import namespace_of
from state.outputs import Split, Unload, rfc3339
from state.quiet_hours import Zones

ActionT = TypeVar("ActionT", Unload, Split)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What decides, in a round with required approval, which actions are proposed."""

    rules: Mapping[str, StandingApproval]
    zones: Zones
    end_ms: int
    expires_ms: int
    """When its proposals expire."""
    waiting: dict[str, str]
    """By broker, the id of an open proposal that it takes part in."""
    acting: set[str] = field(default_factory=set)
    """Brokers of the actions that were approved and go out in this round."""

    @staticmethod
    def of(
        rules: Mapping[str, StandingApproval],
        zones: Zones,
        open_: Collection[ProposalRecord],
        *,
        end_ms: int,
        expires_ms: int,
    ) -> "Asking":
        """The state at the beginning of a round."""
        waiting = {
            broker: each.id
            for each in open_
            for broker in (each.source, each.destination)
            if broker is not None
        }
        return Asking(rules=rules, zones=zones, end_ms=end_ms, expires_ms=expires_ms, waiting=waiting)

    def needs(self, kind: str, bundle: str, *, messages_per_s: float, bytes_per_s: float) -> bool:
        """Whether an action of ``kind`` (``splits``, ``unloads``) waits for a person."""
        return not any(
            rule.approves(
                kind,
                namespace_of(bundle),
                messages_per_s=messages_per_s,
                bytes_per_s=bytes_per_s,
                end_ms=self.end_ms,
                zones=self.zones,
            )
            for rule in self.rules.values()
        )

    def hold(self, *brokers: str | None) -> Hold | None:
        """Why nothing more is proposed for these brokers, if so."""
        for broker in brokers:
            if broker in self.acting:
                detail = f"an approved action of {broker} goes out in this round"
                return Hold(
                    "proposed", detail, spends=self.acting.issuperset(each for each in brokers if each)
                )
        for broker in brokers:
            if broker is not None and broker in self.waiting:
                return Hold("proposed", f"proposal {self.waiting[broker]} of {broker} waits for approval")
        return None

    def propose(self, action: ActionT) -> ActionT:
        """The same action as a proposal."""
        return msgspec.structs.replace(
            action, dry_run=True, proposal=True, expires_at=rfc3339(self.expires_ms)
        )


PROPOSED = Hold("proposed", "it waits for approval")
"""The hold of an action that is proposed in this round."""
