"""What a controller remembers about one bundle or broker after a round, for a person who asks; nothing is decided here."""

from dataclasses import dataclass

import numpy as np

from policies.columns import Floats
from state.engine.control import upkeep_after
from state.engine.ledger import Decision
from state.engine.memory import Header
from state.events import namespace_of
from state.pulsar import masks
from state.pulsar.fleet import Advanced
from state.pulsar.groups import Groups
from state.pulsar.memory import Fleet
from state.settings import PulsarSettings
from state.upkeep import BrokerUpkeep

_NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedBundle:
    """A bundle."""

    owner: str | None
    """None where its broker is forgotten."""
    owner_group: str | None
    """Isolation policy of its broker; None: the default group."""
    namespace_group: str | None
    traffic: tuple[float, float, float, float]
    """Averages: messages/s in and out, bytes/s in and out."""
    samples_count: int
    """Samples in these averages."""
    last_ms: int
    """When it was last listed."""
    owner_upkeep: BrokerUpkeep
    """What operators do at its broker."""
    unload_mask: str
    """Why it may not be unloaded, one of ``MASK_REASONS``; empty: it may."""
    shadow_broker: str | None
    """Broker at which a dry-run counts it, if that is another one."""
    decisions: tuple[Decision, ...]
    """Decisions about it that something may still depend on, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedBroker:
    """A broker."""

    last_ms: int
    """Time of its newest report in a closed round."""
    group: str | None
    bundles: tuple[str, ...]
    """Bundles that it owns, the heaviest by messages first."""
    messages_per_s: tuple[float, ...]
    """Messages per second of each of these bundles, in + out."""
    masks: tuple[str, ...]
    """The ``unload_mask`` of each of these bundles, as in ``RememberedBundle``."""
    policy_memory: dict[str, object]
    """What the policy in force remembers about it, by field."""
    upkeep: BrokerUpkeep
    """What operators do at it."""
    is_excluded: bool
    is_unsettled: bool
    """Whether it waits for an unload of its own to show, with ``hold_unsettled_brokers``."""
    decisions: tuple[Decision, ...]
    """Decisions that it takes part in, the oldest first."""


def remembered_bundle(
    header: Header, fleet: Fleet, pulsar: PulsarSettings, bundle: str, *, end_ms: int
) -> RememberedBundle | None:
    """What is remembered about a bundle; None if it is not known."""
    if bundle not in fleet.bundles:
        return None
    row, groups = fleet.bundles.index(bundle), Groups.of(header.facts)
    owner_row = int(fleet.owner[row])
    owner = None if owner_row == _NOBODY else fleet.brokers[owner_row]
    shadow = fleet.shadow.get(bundle)
    inbound, outbound, bytes_in, bytes_out = fleet.averages[row].tolist()
    namespace = int(groups.of_namespaces([namespace_of(bundle)])[0])
    return RememberedBundle(
        owner=owner,
        owner_group=None if owner is None else groups.names_of([owner])[0],
        namespace_group=groups.name_of(namespace),
        traffic=(inbound, outbound, bytes_in, bytes_out),
        samples_count=int(fleet.samples[row]),
        last_ms=int(fleet.last_ms[row]),
        owner_upkeep="" if owner is None else upkeep_after(header).of_broker(owner),
        unload_mask=_masks(header, fleet, pulsar, row + 1, end_ms=end_ms)[row],
        shadow_broker=None if shadow is None else shadow[1],
        decisions=tuple(each for each in header.ledger.decisions if each.bundle == bundle),
    )


def remembered_broker(
    header: Header, fleet: Fleet, pulsar: PulsarSettings, broker: str, *, end_ms: int
) -> RememberedBroker | None:
    """What is remembered about a broker; None if it is not known."""
    if broker not in fleet.brokers:
        return None
    row = fleet.brokers.index(broker)
    owned = np.flatnonzero(fleet.owner == row)
    messages: Floats = fleet.averages[owned, :2].sum(axis=1)
    order = np.argsort(-messages, kind="stable")
    rows = owned[order].tolist()
    codes = _masks(header, fleet, pulsar, max(rows, default=-1) + 1, end_ms=end_ms)
    upkeep = upkeep_after(header).of_broker(broker)
    stays = "maintenance" if upkeep == "maintenance" else ""
    memory = fleet.policies.get(pulsar.shedding_policy, {})
    return RememberedBroker(
        last_ms=int(fleet.broker_last_ms[row]),
        group=Groups.of(header.facts).names_of([broker])[0],
        bundles=tuple(fleet.bundles[each] for each in rows),
        messages_per_s=tuple(messages[order].tolist()),
        masks=tuple(codes[each] or stays for each in rows),
        policy_memory={name: values[broker] for name, values in memory.items() if broker in values},
        upkeep=upkeep,
        is_excluded=broker in pulsar.guards.excluded_brokers,
        is_unsettled=broker in masks.unsettled_brokers(header, pulsar, end_ms=end_ms),
        decisions=tuple(
            each for each in header.ledger.decisions if broker in {each.source, each.destination}
        ),
    )


def _masks(header: Header, fleet: Fleet, pulsar: PulsarSettings, count: int, *, end_ms: int) -> list[str]:
    """Why each of the fleet's first ``count`` bundles may not be unloaded."""
    leading = Advanced(
        fleet=fleet,
        counts=np.zeros((count, 2), dtype=np.int64),
        reported=np.zeros((count, 4)),
        is_sampled=np.zeros(count, dtype=np.bool_),
        is_absent=np.zeros(count, dtype=np.bool_),
    )
    unsettled = masks.unsettled_brokers(header, pulsar, end_ms=end_ms)
    resting = upkeep_after(header).namespaces
    codes = masks.unload_mask(leading, header, pulsar, unsettled, end_ms=end_ms, resting=resting)
    return [masks.MASK_REASONS[code] for code in codes.tolist()]
