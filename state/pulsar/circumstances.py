"""What every action of a round shares: its number and times, the policy, and what holds the whole round."""

from dataclasses import dataclass

from policies.shedding.registry import AnyPolicy
from state.engine.closing import Closing
from state.engine.memory import Header
from state.pulsar import members
from state.pulsar.asking import Asking
from state.pulsar.holds import Holds, holds_of
from state.pulsar.members import Calm


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What every action of a round shares."""

    cluster: str
    number: int
    end_ms: int
    expires_ms: int
    policy: AnyPolicy
    dry_run: bool
    holds: Holds
    calm: Calm
    min_benefit_points: float = 0.0
    """``min_unload_benefit_points``."""
    asking: Asking | None = None
    """Set if actions have to be approved; None if they go out at once."""


def circumstances_of(closing: Closing, header: Header) -> Circumstances:
    """The circumstances of a round, after the judgement of the actions before it."""
    pulsar = closing.settings.pulsar
    return Circumstances(
        cluster=closing.cluster,
        number=closing.number,
        end_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        policy=pulsar.policy,
        dry_run=closing.is_dry_run,
        holds=holds_of(
            header,
            pulsar.guards,
            is_paused=closing.is_paused,
            mode=closing.mode,
            end_ms=closing.end_ms,
            zones=closing.settings.zones,
        ),
        calm=members.calm(header, pulsar, number=closing.number),
        min_benefit_points=0.0 if pulsar.policy.plans_rounds else pulsar.guards.min_unload_benefit_points,
        asking=_asking(closing, header),
    )


def _asking(closing: Closing, header: Header) -> Asking | None:
    """The ``Asking`` of a round whose actions have to be approved; None where they go out at once."""
    if closing.proposals_expire_ms is None:
        return None
    return Asking.of(
        closing.settings.pulsar.approval.standing,
        closing.settings.zones,
        header.proposals,
        end_ms=closing.end_ms,
        expires_ms=closing.proposals_expire_ms,
    )
