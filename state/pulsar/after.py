"""Traffic of the brokers as the actions of a round change it: the load that an action says is expected after it."""

from policies.columns import Floats
from policies.shedding.view import NOBODY, RoundView
from state.pulsar.moves import Move


class After:
    """Traffic of each broker of the view after the round's actions so far."""

    def __init__(self, view: RoundView) -> None:
        self._view = view
        self._messages: Floats = view.brokers.messages_per_s.copy()
        self._volume: Floats = view.brokers.bytes_per_s.copy()

    def move(self, move: Move) -> dict[str, dict[str, float]]:
        """Move a bundle; returns the load of both brokers after that."""
        bundles = self._view.bundles
        messages, volume = bundles.messages_per_s[move.row], bundles.bytes_per_s[move.row]
        self._add(move.source, -messages, -volume)
        expected = {"source": self._load(move.source)}
        if move.destination != NOBODY:
            expected["destination"] = self.receive(move.destination, messages, volume)
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
