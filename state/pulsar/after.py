"""Traffic of the brokers as the actions of a round change it: the load that an action says is expected after it."""

from policies.columns import Floats
from policies.shedding.view import NOBODY, RoundView


class After:
    """Traffic of each broker of the view after the round's actions so far."""

    def __init__(self, view: RoundView) -> None:
        self._view = view
        self._messages: Floats = view.brokers.messages_per_s.copy()
        self._volume: Floats = view.brokers.bytes_per_s.copy()

    def move(self, row: int, *, source: int, destination: int) -> dict[str, dict[str, float]]:
        """Move a bundle row; returns the load of both brokers after that."""
        bundles = self._view.bundles
        messages, volume = bundles.messages_per_s[row], bundles.bytes_per_s[row]
        self._add(source, -messages, -volume)
        expected = {"source": self._load(source)}
        if destination != NOBODY:
            expected["destination"] = self.receive(destination, messages, volume)
        return expected

    def receive(self, broker: int, messages_per_s: float, bytes_per_s: float) -> dict[str, float]:
        """Add a bundle to a broker, also one from a broker outside the view; returns the load of the broker after that."""
        self._add(broker, messages_per_s, bytes_per_s)
        return self._load(broker)

    def _add(self, broker: int, messages_per_s: float, bytes_per_s: float) -> None:
        self._messages[broker] = max(0.0, self._messages[broker] + messages_per_s)
        self._volume[broker] = max(0.0, self._volume[broker] + bytes_per_s)

    def _load(self, broker: int) -> dict[str, float]:
        return traffic_of(float(self._messages[broker]), float(self._volume[broker]))


def traffic_of(messages_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """A load in the form that actions have."""
    return {"messages_per_s": messages_per_s, "bytes_per_s": bytes_per_s}


def share_ratio(part: float, whole: float) -> float:
    """A bundle's share of its broker's traffic, at most 1: averages lag behind, so the bundle may seem to have more than all of it."""
    return 1.0 if part >= whole > 0 else part / whole if whole > 0 else float(part > 0)
