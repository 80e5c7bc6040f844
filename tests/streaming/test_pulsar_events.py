"""A producer of events on Pulsar that never comes back after an outage is replaced; the client is a stand-in."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pulsar
import pytest

from streaming.pulsar import clients as clients_of_pulsar
from streaming.pulsar import events as pulsar_events
from streaming.pulsar.events import PulsarEvents
from streaming.pulsar.link import PulsarLink
from streaming.settings import PulsarTopics
from streaming.transport.errors import PublishError

LINK = PulsarLink("pulsar://a:1", "input", PulsarTopics())


@dataclass(slots=True)
class Client:
    """A client that is its own producer and gives ``answer`` to each message."""

    answer: pulsar.Result | None
    """None: it never answers."""
    sent: list[bytes] = field(default_factory=list)
    is_closed: bool = False

    def create_producer(self, *_: object, **__: object) -> "Client":
        return self

    def send_async(
        self, value: bytes, sent: Callable[[pulsar.Result, pulsar.MessageId | None], None], **_: object
    ) -> None:
        self.sent.append(value)
        if self.answer is not None:
            sent(self.answer, None)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """Clients that the next connections get, in order."""
    waiting: list[Client] = []
    monkeypatch.setattr(clients_of_pulsar, "connect", lambda *_, **__: waiting.pop(0))
    monkeypatch.setattr(pulsar_events, "_FLUSH_S", 0.05)
    return waiting


@pytest.mark.parametrize("answer", [pulsar.Result.Timeout, None])
def test_after_a_flush_that_failed_or_was_never_answered_events_go_out_with_a_client_made_anew(
    clients: list[Client], answer: pulsar.Result | None
) -> None:
    broken, sound = Client(answer), Client(pulsar.Result.Ok)
    clients += [broken, sound]
    events = PulsarEvents(LINK, "trimtab.input")
    events.send("c", b"lost")
    with pytest.raises(PublishError, match="events were not written"):
        events.flush()
    assert broken.is_closed
    events.send("c", b"written")
    events.flush()
    assert (broken.sent, sound.sent) == ([b"lost"], [b"written"])
    events.close()
    assert sound.is_closed


def test_what_was_lost_when_the_client_was_given_up_in_between_is_told_at_the_flush(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_events, "WINDOW", 1)
    clients += [Client(None), Client(pulsar.Result.Ok)]
    events = PulsarEvents(LINK, "trimtab.input")
    events.send("c", b"first")
    with pytest.raises(PublishError, match="could not be sent"):
        events.send("c", b"second")
    events.send("c", b"third")
    with pytest.raises(PublishError, match="no answer within"):
        events.flush()
    events.flush()
