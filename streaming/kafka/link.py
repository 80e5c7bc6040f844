"""Turns the settings of a connection into options of the two Kafka clients we use: kafka-python and Spark's.

Certificates travel to Spark as text, not as paths, so that Spark's executors need no files of ours. If they run on
other machines, Spark's own connections must be secured (``spark.authenticate``, ``spark.network.crypto.enabled``).
Nothing here connects.
"""

from dataclasses import dataclass
from pathlib import Path

from streaming.kafka.client import connect_quickly
from streaming.kafka.permissions import ANYBODY, Subject
from streaming.process.exits import WrongUse
from streaming.settings import SecuritySettings, Settings

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class Link:
    """One side's brokers and how to reach them; ``section`` is its name in the settings."""

    bootstrap: str
    section: str
    security: SecuritySettings

    @property
    def principal(self) -> str:
        """Our name in the brokers' access lists, as far as the settings show it."""
        if self.security.names_a_user:
            return f"User:{self.security.username}"
        return ANYBODY if self.security.certificate_file is None else "User:<subject of your certificate>"

    @property
    def subject(self) -> Subject:
        """Our user, and the brokers that it asks."""
        return Subject(bootstrap=self.bootstrap, principal=self.principal)

    def client_options(self) -> dict[str, object]:
        """Options of any client of kafka-python, without the addresses; raises ``WrongUse`` for a file it cannot read."""
        found: dict[str, object] = {
            "security_protocol": self.security.protocol.upper(),
            "kafka_client": connect_quickly,
        }
        if self.security.encrypts:
            files = {"ca_file": "ssl_cafile", "certificate_file": "ssl_certfile", "key_file": "ssl_keyfile"}
            given = {name: option for name, option in files.items() if getattr(self.security, name)}
            for name, option in given.items():
                self._text(name)
                found[option] = getattr(self.security, name)
        if self.security.names_a_user:
            found["sasl_mechanism"] = self.security.mechanism
            found["sasl_plain_username"] = self.security.username
            found["sasl_plain_password"] = self._password()
        return found

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's Kafka source; raises ``WrongUse`` for a file it cannot read.

        Source: Kafka's client configuration, PEM stores by KIP-651.
        """
        found = {"kafka.security.protocol": self.security.protocol.upper()}
        if self.security.ca_file is not None:
            found["kafka.ssl.truststore.type"] = "PEM"
            found["kafka.ssl.truststore.certificates"] = self._text("ca_file")
        if self.security.certificate_file is not None:
            found["kafka.ssl.keystore.type"] = "PEM"
            found["kafka.ssl.keystore.certificate.chain"] = self._text("certificate_file")
            found["kafka.ssl.keystore.key"] = self._text("key_file")
        if self.security.names_a_user:
            found["kafka.sasl.mechanism"] = self.security.mechanism
            found["kafka.sasl.jaas.config"] = self._jaas()
        return found

    def _jaas(self) -> str:
        module = _LOGIN_MODULES[self.security.mechanism]
        user, password = _quote(str(self.security.username)), _quote(self._password())
        return f"{module} required username={user} password={password};"

    def _password(self) -> str:
        if self.security.password is not None:
            return self.security.password.get_secret_value()
        return self._text("password_file").removesuffix("\n").removesuffix("\r")

    def _text(self, name: str) -> str:
        path = getattr(self.security, name)
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"{self.section}.security.{name}: {path} cannot be read: {error}") from error


def input_link(settings: Settings) -> Link:
    """Where load reports and control events are. Raises ``WrongUse`` where that is not Kafka."""
    if settings.input.is_pulsar:
        raise WrongUse(f"input.url is {settings.input.url}: this is done on Kafka only")
    return Link(settings.input.bootstrap, "input", settings.input.security)


def output_link(settings: Settings) -> Link:
    """Where decisions go: the input's link if the output has no address of its own. Raises as ``input_link`` does."""
    if settings.output.url is None:
        return input_link(settings)
    if settings.output_is_pulsar:
        raise WrongUse(f"output.url is {settings.output.url}: this is done on Kafka only")
    return Link(settings.output_bootstrap, "output", settings.output.security)


def same_brokers(one: Link, other: Link) -> bool:
    """Whether two links lead to the same place as the same user."""
    return (one.bootstrap, one.security) == (other.bootstrap, other.security)


def _quote(text: str) -> str:
    """A value of a JAAS line (RFC 822 style quoted text)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
