"""Follows the load data that brokers with the extensible load manager publish (PIP-192), and keeps each broker's newest.

It is on two topics that are not persistent, keyed by broker: a new reader gets a broker's data only when the broker publishes
again. So both topics are followed all the time, with a client of their own, and the newest values are kept. A broker whose
bundles change takes its values back, and publishes again within seconds.

Source: Pulsar ``BrokerLoadData`` and ``TopBundlesLoadData``, and their ``LoadDataStore``.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import pulsar

from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.clients import close, connect, explain_denied
from streaming.pulsar.http import AdminError, HttpClient
from streaming.settings.targets import PulsarTarget

LOAD_TOPIC: Final = "non-persistent://pulsar/system/loadbalancer-broker-load-data"
TOP_BUNDLES_TOPIC: Final = "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data"
_TOPICS = (LOAD_TOPIC, TOP_BUNDLES_TOPIC)


class NoLoadData(Exception):
    """No load data of a broker is known; the text says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class PublishedLoad:
    """A broker's newest values, JSON as it published them."""

    load: bytes
    top_bundles: bytes
    """Empty where it has published none since its bundles changed."""


class LoadData:
    """Follows the load of one cluster's brokers. Thread-safe.

    The admin API finds the broker that has the topics, so only the admin API has to be configured.
    """

    def __init__(self, admin: PulsarAdmin, http: HttpClient, target: PulsarTarget) -> None:
        self._admin = admin
        self._http = http
        self._target = target
        self._values: dict[str, dict[str, bytes]] = {topic: {} for topic in _TOPICS}
        """By topic and broker; empty bytes: the broker took its value back."""
        self._problem: str | None = None
        """Why the topics cannot be followed; None where they can."""
        self._changed = threading.Condition()
        self._client: pulsar.Client | None = None
        self._readers: list[pulsar.Reader] = []

    def follow(self) -> None:
        """Begin, or go on after the connection was lost; for one thread at a time. If that fails, ``newest`` raises the reason."""
        if self._client is not None and all(reader.is_connected() for reader in self._readers):
            return
        self.close()
        try:
            client = self._client = connect(
                self._admin.service_url(LOAD_TOPIC),
                token_file=self._target.token_file,
                ca_file=self._target.ca_file,
                timeout_s=self._target.timeout_s,
                authentication=self._authentication(),
            )
            self._readers = [self._reader(client, topic) for topic in _TOPICS]
        except AdminError as error:
            self._give_up(f"the broker that serves the brokers' load data cannot be found: {error}")
        except pulsar.PulsarException as error:
            why = explain_denied(error, LOAD_TOPIC, "consume")
            self._give_up(f"the brokers' load data cannot be read: {why}")
        else:
            self._note_problem(None)

    def _give_up(self, problem: str) -> None:
        """Stop until ``follow`` is called again. Known values are not given out meanwhile: they may have been taken back."""
        self.close()
        self._note_problem(problem)

    def _note_problem(self, problem: str | None) -> None:
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def _take(self, topic: str, broker: str, value: bytes) -> None:
        with self._changed:
            self._values[topic][broker] = value
            self._changed.notify_all()

    def newest(self, broker: str, *, within_s: float) -> PublishedLoad:
        """What a broker published last; waits up to ``within_s`` while there is nothing. Raises ``NoLoadData``."""
        loads, top_bundles = self._values[LOAD_TOPIC], self._values[TOP_BUNDLES_TOPIC]
        with self._changed:
            self._changed.wait_for(lambda: self._problem or loads.get(broker), within_s)
            if self._problem or not loads.get(broker):
                raise NoLoadData(self._explain_no_load(broker))
            return PublishedLoad(loads[broker], top_bundles.get(broker, b""))

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget what other brokers published: they are gone."""
        with self._changed:
            for values in self._values.values():
                for broker in values.keys() - set(brokers):
                    del values[broker]

    def close(self) -> None:
        """Stop following; what was heard stays."""
        client, self._client, self._readers = self._client, None, []
        if client is not None:
            close(client)

    def _authentication(self) -> pulsar.Authentication | None:
        """The credentials, if they are not a token in a file."""
        target = self._target
        if target.token_env is not None:
            return pulsar.AuthenticationToken(lambda: self._http.token() or "")
        if target.token_file is None and target.certificate_file is not None:
            return pulsar.AuthenticationTLS(target.certificate_file, target.key_file)
        return None

    def _reader(self, client: pulsar.Client, topic: str) -> pulsar.Reader:
        def listen(_: pulsar.Reader, message: pulsar.Message) -> None:
            self._take(topic, message.partition_key(), message.data())

        return client.create_reader(topic, pulsar.MessageId.latest, reader_listener=listen)

    def _explain_no_load(self, broker: str) -> str:
        if self._problem:
            return self._problem
        if broker in self._values[LOAD_TOPIC]:
            return "it took back what it published, as it does when its bundles change; it publishes again within seconds"
        return (
            "it has published no load since this collector began to listen: while its load is steady a broker publishes every "
            "loadBalancerReportUpdateMaxIntervalMinutes (15)"
        )
