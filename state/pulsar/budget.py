"""How many unloads may happen: applied after the policy, in its order. A budget only removes actions, with a typed reason."""

from collections import Counter
from dataclasses import dataclass, field, replace

from state.engine.holds import Hold
from state.engine.ledger import Ledger
from state.events import namespace_of
from state.settings import GuardSettings


@dataclass(slots=True)
class Budget:
    """Counts the unloads of one round, and holds those above a limit."""

    guards: GuardSettings
    hour_count: int
    """Unloads of the last hour, without those that empty brokers."""
    leaving: dict[str, set[str]]
    """By broker, bundles that were told to leave it, earlier or in this round; ``take`` adds to it."""
    drained_count: int = 0
    """Unloads of the last hour that empty brokers."""
    round_count: int = 0
    by_broker: Counter[str] = field(default_factory=Counter)
    by_namespace: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def of(ledger: Ledger, guards: GuardSettings, leaving: dict[str, set[str]], *, end_ms: int) -> "Budget":
        """The budget at the start of a round."""
        return Budget(
            guards=guards,
            hour_count=ledger.unloads_of_last_hour_count(end_ms=end_ms),
            drained_count=ledger.drained_in_last_hour_count(end_ms=end_ms),
            leaving=leaving,
        )

    def draft(self) -> "Budget":
        """A copy, to be spent on unloads that may not happen after all."""
        return replace(
            self,
            leaving={broker: set(bundles) for broker, bundles in self.leaving.items()},
            by_broker=Counter(self.by_broker),
            by_namespace=Counter(self.by_namespace),
        )

    def take(self, bundle: str, *, broker: str, owned_count: int) -> Hold | None:
        """Spend one unload of ``bundle`` from ``broker``, or say why not. Limits of 0 are off."""
        others = self.leaving.get(broker, set()) - {bundle}
        if self.guards.keep_sole_bundle and owned_count - len(others) <= 1:
            more = f" that stays: {len(others)} were told to leave" if others else ""
            return Hold("sole-bundle", f"{broker} owns no other bundle{more}")
        hold = self._hold(bundle, broker, ("max_unloads_per_hour_count", self.hour_count))
        if hold is None:
            self.hour_count += 1
            self._spend(bundle, broker)
        return hold

    def drain_hold(self, bundle: str, *, broker: str) -> Hold | None:
        """Why ``bundle`` may not leave a drained broker now, if so; a drain has an hourly budget of its own."""
        return self._hold(bundle, broker, ("max_drain_unloads_per_hour_count", self.drained_count))

    def drain(self, bundle: str, *, broker: str) -> None:
        """Spend one unload of ``bundle`` from a drained broker."""
        self.drained_count += 1
        self._spend(bundle, broker)

    def _hold(self, bundle: str, broker: str, hourly: tuple[str, int]) -> Hold | None:
        for name, spent in (
            ("max_unloads_per_round_count", self.round_count),
            hourly,
            ("max_unloads_per_broker_count", self.by_broker[broker]),
            ("max_unloads_per_namespace_count", self.by_namespace[namespace_of(bundle)]),
        ):
            limit = getattr(self.guards, name)
            if limit and spent >= limit:
                return Hold("budget", f"{name} {limit} is spent")
        return None

    def _spend(self, bundle: str, broker: str) -> None:
        self.round_count += 1
        self.by_broker[broker] += 1
        self.by_namespace[namespace_of(bundle)] += 1
        self.leaving.setdefault(broker, set()).add(bundle)
