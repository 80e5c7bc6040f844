"""Makes the clients of a side that is on Pulsar from its settings: for the log, and for the admin API.

Nothing here connects by itself, and Pulsar's client library is only loaded when a client is made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.settings import PulsarTarget, PulsarTopics, Settings

if TYPE_CHECKING:
    import pulsar

    from streaming.pulsar.admin import PulsarAdmin


@dataclass(frozen=True, slots=True)
class PulsarLink:
    """One side's brokers and topics; ``section`` is its name in the settings."""

    service_url: str
    section: str
    place: PulsarTopics
    subscription: str = ""
    """The durable one that keeps unread records of the input."""

    def full_name(self, topic: str) -> str:
        """``persistent://tenant/namespace/topic``."""
        return self.place.full_name(topic)

    def client(self, *, timeout_s: float | None = None) -> "pulsar.Client":
        """A client of the log; ``timeout_s`` bounds the making of producers and readers. Connects when it is used."""
        from streaming.pulsar.clients import connect  # noqa: PLC0415  loads Pulsar's client

        place = self.place
        return connect(
            self.service_url, token_file=place.token_file, ca_file=place.ca_file, timeout_s=timeout_s
        )

    @contextmanager
    def admin(self) -> "Iterator[PulsarAdmin]":
        """A client of the admin API. Raises ``CredentialsError``; its calls raise ``AdminError``."""
        from streaming.pulsar.admin import PulsarAdmin  # noqa: PLC0415  loads httpx
        from streaming.pulsar.http import AdminError, HttpClient  # noqa: PLC0415  loads httpx

        place = self.place
        target = PulsarTarget(
            admin_url=place.admin_url,
            token_file=place.token_file,
            ca_file=place.ca_file if place.admin_url.startswith("https://") else None,
        )
        try:
            with HttpClient(target) as http:
                yield PulsarAdmin(http, target)
        except AdminError as error:
            if error.failure == "unreachable" and place.admin_url == PulsarTopics().admin_url:
                error.advise(f"the address is the default of {self.section}.pulsar.admin_url")
            elif error.failure == "not-found" and error.answer.startswith("Namespace"):
                create = f"pulsar-admin namespaces create {place.namespace}"
                error.advise(f"create the namespace by `{create}`, or set {self.section}.pulsar.namespace")
            raise


def input_on_pulsar(settings: Settings) -> PulsarLink | None:
    """Where load reports, results and control events are; None where that is Kafka."""
    if not settings.input.is_pulsar:
        return None
    place = settings.input.pulsar
    return PulsarLink(settings.input.url, "input", place, place.subscription)


def output_on_pulsar(settings: Settings) -> PulsarLink | None:
    """Where decisions go; the input's link if the output has no address of its own. None where that is Kafka."""
    if settings.output.url is None:
        return input_on_pulsar(settings)
    if not settings.output_is_pulsar:
        return None
    return PulsarLink(settings.output.url, "output", settings.output.pulsar)
