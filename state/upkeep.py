"""What operators have taken out of balancing: brokers and namespaces under maintenance, and brokers that are drained.

Only values, as they are in a control event; their consequences are in ``state.pulsar``.
"""

import msgspec


class Spell(msgspec.Struct, frozen=True, array_like=True):
    """Since when, until when and why something is under maintenance, or drained."""

    since_ms: int
    """When it was asked for."""
    until_ms: int | None = None
    """When it ends by itself: it holds for rounds that begin before then. None: a person ends it."""
    who: str = ""
    why: str = ""

    def holds_at(self, start_ms: int) -> bool:
        """Whether it holds for a round that begins then."""
        return self.until_ms is None or start_ms < self.until_ms


class Upkeep(msgspec.Struct, frozen=True, array_like=True):
    """All that is under maintenance or drained, by name. A broker is in at most one of the two tables of brokers."""

    brokers: dict[str, Spell] = {}
    """Brokers under maintenance: neither source nor destination, and not missing while they are silent."""
    namespaces: dict[str, Spell] = {}
    """Namespaces (``tenant/namespace``) under maintenance: their bundles stay where they are."""
    drains: dict[str, Spell] = {}
    """Brokers that are emptied; otherwise they are treated as under maintenance."""

    def at(self, start_ms: int) -> "Upkeep":
        """The part that holds for a round that begins then."""
        if not self:
            return self
        return Upkeep(*(_holding(each, start_ms) for each in (self.brokers, self.namespaces, self.drains)))

    def __bool__(self) -> bool:
        return bool(self.brokers or self.namespaces or self.drains)

    @property
    def apart(self) -> frozenset[str]:
        """Brokers that take no part in balancing."""
        return frozenset({*self.brokers, *self.drains})


def _holding(spells: dict[str, Spell], start_ms: int) -> dict[str, Spell]:
    return {name: each for name, each in sorted(spells.items()) if each.holds_at(start_ms)}


NOTHING = Upkeep()
"""Nothing is under maintenance, and nothing is drained."""
