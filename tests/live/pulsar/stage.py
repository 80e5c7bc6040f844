"""What a live test plays on when the input, the output or both are on Pulsar: a namespace of its own, and ``Stage``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pulsar as pulsar_client

from streaming.pulsar.clients import close
from streaming.settings import Settings, load
from streaming.systems import create_all
from tests.live.pulsar.lab import Lab, connected, service_url_of
from tests.live.stage import Stage, is_leader


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the tests look at Kafka's records."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def messages(client: pulsar_client.Client, topic: str) -> list[Message]:
    """All there is on a topic (full name), in order."""
    reader = client.create_reader(topic, pulsar_client.MessageId.earliest)
    found = []
    try:
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=10_000)
            headers = tuple((name, value.encode()) for name, value in message.properties().items())
            found.append(Message(message.partition_key().encode(), message.data(), headers))
    finally:
        reader.close()
    return found


@dataclass(slots=True)
class PulsarStage(Stage):
    """A stage whose sides are on Pulsar as asked for; a side that is not is on the Kafka of ``bootstrap``."""

    lab: Lab | None = None
    on_pulsar: frozenset[str] = frozenset({"input", "output"})
    input_partitions: int = 1
    token_file: Path | None = None
    """The token of the role whose settings are made; None: the lab's own."""
    _client: pulsar_client.Client = field(init=False)
    _producers: dict[str, pulsar_client.Producer] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        Stage.__post_init__(self)
        assert self.lab is not None
        self._client = connected(self.lab.pulsar)

    def connect_anew(self) -> None:
        """Make a new client after an outage: the old one's producers may be lost."""
        assert self.lab is not None
        close(self._client)
        self._producers.clear()
        self._client = connected(self.lab.pulsar)

    @classmethod
    def of(
        cls,
        lab: Lab,
        directory: Path,
        *,
        bootstrap: str = "",
        on_pulsar: Sequence[str] = ("input", "output"),
        input_partitions: int = 1,
    ) -> "PulsarStage":
        """A stage with all its topics made."""
        sides = frozenset(on_pulsar)
        name = f"p-{uuid4().hex[:8]}"
        made = cls(bootstrap, name, directory, lab=lab, on_pulsar=sides, input_partitions=input_partitions)
        made.create_topics()
        return made

    def create_topics(self) -> None:
        """Create the topics as `trimtab topics create` does."""
        create_all(self.loaded(), input_partitions=self.input_partitions)

    def loaded(self) -> Settings:
        """The stage's settings."""
        return load(file=self.settings(file="topics.toml"), flags={}, environ={}).settings

    def settings(self, *, base: str | None = None, file: str = "trimtab.toml", **overrides: object) -> Path:
        """Like ``Stage.settings``, with the addresses of both sides."""
        assert self.lab is not None
        target = self.lab.target
        kafka = f"kafka://{self.bootstrap}"
        sides = {
            f"{side}__url": service_url_of(self.lab.pulsar) if side in self.on_pulsar else kafka
            for side in ("input", "output")
        }
        keywords = {} if base is None else {"base": base}
        made = Stage.settings(self, file=file, **keywords, **sides, **overrides)  # type: ignore[arg-type]
        token = self.token_file or target.token_file
        place = {"admin_url": target.admin_url, "namespace": self.lab.namespace}
        place |= {"ca_file": target.ca_file} if target.ca_file else {}
        place |= {"token_file": str(token)} if token else {}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in place.items())
        with made.open("a") as text:
            text.writelines(f"\n[{side}.pulsar]\n{lines}" for side in sorted(self.on_pulsar))
        return made

    def send_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        to: str | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Produce one message as it is; input and control are on the input's side."""
        if "input" not in self.on_pulsar:
            Stage.send_raw(self, key, value, to=to, headers=headers)
            return
        topic = to or self.topics.input
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(self.full_name(topic))
        self._producers[topic].send_async(
            value,
            None,
            partition_key=None if key is None else key.decode(),
            properties={name: text.decode() for name, text in headers},
        )

    def flush(self) -> None:
        """Wait until the brokers have everything."""
        Stage.flush(self)
        for producer in self._producers.values():
            producer.flush()

    def read(self, topic: str) -> list[Message]:  # type: ignore[override]
        """Every message of an output topic, in order, up to now, without the announcements of a take-over."""
        if "output" not in self.on_pulsar:
            return Stage.read(self, topic)
        found = messages(self._client, self.full_name(topic))
        return [message for message in found if not is_leader(message.value)]

    def full_name(self, topic: str) -> str:
        """``persistent://…``."""
        assert self.lab is not None
        return f"persistent://{self.lab.namespace}/{topic}"

    def close(self) -> None:
        """Close all connections."""
        Stage.close(self)
        close(self._client)
