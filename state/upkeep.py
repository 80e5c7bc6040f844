"""What operators have taken out of balancing: brokers and namespaces under maintenance, and brokers that are drained.

Only values, as a control event says them; what follows from them is in ``state.pulsar``.
"""

import msgspec


class Spell(msgspec.Struct, frozen=True, array_like=True):
    """Since when, until when and why something is under maintenance, or drained."""

    since_ms: int
    """When it was asked for."""
    until_ms: int | None = None
    """When it ends by itself: it holds the rounds that begin before. None: a person ends it."""
    who: str = ""
    why: str = ""

    def holds_at(self, start_ms: int) -> bool:
        """Whether it holds for a round that begins then."""
        return self.until_ms is None or start_ms < self.until_ms


class Upkeep(msgspec.Struct, frozen=True, array_like=True):
    """All of it, by name. A broker is in one of the two tables at most."""

    brokers: dict[str, Spell] = {}
    """Brokers under maintenance: neither source nor destination, and missed by nobody."""
    namespaces: dict[str, Spell] = {}
    """Namespaces (``tenant/namespace``) under maintenance: their bundles stay where they are."""
    drains: dict[str, Spell] = {}
    """Brokers that are emptied, and treated as under maintenance for the rest."""

    def at(self, start_ms: int) -> "Upkeep":
        """What of it holds for a round that begins then."""
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
