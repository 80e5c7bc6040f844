"""One side's brokers on Kafka: how its settings become clients' options, and which permissions are needed there.

Certificates travel to Spark as text, not as paths, so that Spark's executors need no files of ours. If they run on
other machines, Spark's own connections must be secured (``spark.authenticate``, ``spark.network.crypto.enabled``).

Kafka's description of a topic lists what the asking user may do there; without an authorizer that is everything. So a
missing access control entry is named, with the command that adds it, instead of failing later and elsewhere.
docs/run/security.md has the entries of every component. Nothing here connects.
"""

import logging
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from streaming.process.exits import WrongUse, words_of
from streaming.settings import SecuritySettings, Settings, TopicNames
from streaming.transport.topics import Denied

ANYBODY = "User:ANONYMOUS"
"""The user that brokers see if they ask clients for no name."""
Operation = Literal["AlterConfigs", "Create", "Describe", "DescribeConfigs", "Read", "Write"]
"""Operations as kafka-acls.sh spells them."""
Resource = Literal["topic", "transactional-id", "group", "cluster"]
_KAFKA_NAMES: Mapping[Operation, str] = {
    "AlterConfigs": "ALTER_CONFIGS",
    "Create": "CREATE",
    "Describe": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
    "Read": "READ",
    "Write": "WRITE",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


_LOG = logging.getLogger(__name__)
_LAST: dict[tuple[str | None, ...], dict[str, object]] = {}
"""By the paths of files, the options that this process made of them last."""


@dataclass(frozen=True, slots=True)
class KafkaLink:
    """One side's brokers and how to reach them; ``section`` is its name in the settings."""

    bootstrap: str
    section: str = "output"
    security: SecuritySettings = field(default_factory=SecuritySettings)

    @property
    def principal(self) -> str:
        """Our name in the brokers' access lists, as far as the settings show it."""
        if self.security.names_a_user:
            return f"User:{self.security.username}"
        return ANYBODY if self.security.certificate_file is None else "User:<subject of your certificate>"

    def client_options(self) -> dict[str, object]:
        """Options of any client of kafka-python, without the addresses; raises ``WrongUse`` for a file that it could never use.

        A running program connects again and again, and a file that is being replaced cannot be used for a moment.
        """
        security = self.security
        options: dict[str, object] = {"security_protocol": security.protocol.upper()}
        if security.encrypts:
            files = (security.ca_file, security.certificate_file, security.key_file)
            options.update(_last(files, self._certificates))
        if security.names_a_user:
            options["sasl_mechanism"] = security.mechanism
            options["sasl_plain_username"] = security.username
            options.update(
                _last((security.password_file,), lambda: {"sasl_plain_password": self._password()})
            )
        return options

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's Kafka source; raises ``WrongUse`` for a file it cannot read.

        Source: Kafka's client configuration, PEM stores by KIP-651.
        """
        options = {"kafka.security.protocol": self.security.protocol.upper()}
        if self.security.ca_file is not None:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.certificates"] = self._text("ca_file")
        if self.security.certificate_file is not None:
            options["kafka.ssl.keystore.type"] = "PEM"
            options["kafka.ssl.keystore.certificate.chain"] = self._text("certificate_file")
            options["kafka.ssl.keystore.key"] = self._text("key_file")
        if self.security.names_a_user:
            options["kafka.sasl.mechanism"] = self.security.mechanism
            options["kafka.sasl.jaas.config"] = self._jaas()
        return options

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
            raise WrongUse(
                f"{self.section}.security.{name}: {path} cannot be read: {words_of(error)}"
            ) from error

    def _certificates(self) -> dict[str, object]:
        """Paths, which a client reads at each connection. It takes a file that it cannot use for a broker that says nothing."""
        security, tls = self.security, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        options: dict[str, object] = {}
        names: tuple[str, ...] = ("ca_file",)
        try:
            if security.ca_file is not None:
                self._text("ca_file")  # it names the file that cannot be read, which ssl does not
                tls.load_verify_locations(security.ca_file)
                options["ssl_cafile"] = security.ca_file
            if security.certificate_file is not None:
                names = ("certificate_file", "key_file")
                for name in names:
                    self._text(name)
                tls.load_cert_chain(security.certificate_file, security.key_file, password="")
                options |= {"ssl_certfile": security.certificate_file, "ssl_keyfile": security.key_file}
        except OSError as error:
            paths = " and ".join(f"{name} {getattr(security, name)}" for name in names)
            raise WrongUse(f"{self.section}.security: {paths} cannot be used: {words_of(error)}") from error
        return options


def _last(files: tuple[str | None, ...], read: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Options from the files as they are; as they were before where they cannot be used now, because others may be coming."""
    try:
        options = read()
    except WrongUse as error:
        if files not in _LAST:
            raise
        _LOG.warning("%s; it could be used before, so this goes on as before", error)
        return _LAST[files]
    _LAST[files] = options
    return options


def input_link(settings: Settings) -> KafkaLink:
    """Where load reports and control events are. Raises ``WrongUse`` where that is not Kafka."""
    if settings.input.is_pulsar:
        raise WrongUse(f"input.url is {settings.input.url}: this is done on Kafka only")
    return KafkaLink(settings.input.bootstrap, "input", settings.input.security)


def output_link(settings: Settings) -> KafkaLink:
    """Where decisions go: the input's link if the output has no address of its own. Raises as ``input_link`` does."""
    if settings.output.url is None:
        return input_link(settings)
    if settings.output_is_pulsar:
        raise WrongUse(f"output.url is {settings.output.url}: this is done on Kafka only")
    return KafkaLink(settings.output_bootstrap, "output", settings.output.security)


def _quote(text: str) -> str:
    """A value of a JAAS line (RFC 822 style quoted text)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPermissions:
    """The permissions in a topic's description; ``allowed`` are Kafka's names of operations, None if they are not in it."""

    name: str
    hidden: bool
    """Whether even its description is refused."""
    allowed: frozenset[str] | None


def controller_operations(names: TopicNames) -> dict[str, tuple[Operation, ...]]:
    """What `trimtab run` needs, by topic; without the topic of beats it runs all the same."""
    reads: tuple[Operation, ...] = ("Read", "DescribeConfigs")
    writes: tuple[Operation, ...] = ("Write", "DescribeConfigs")
    return {
        names.input: reads,
        names.control: reads,
        names.actions: writes,
        names.actions_dry_run: writes,
        names.audit: writes,
        names.dead_letter: writes,
        names.commits: ("Read", *writes),
        names.beats: writes,
    }


def find_denied(
    link: KafkaLink, names: TopicNames, permissions: Sequence[TopicPermissions]
) -> Iterator[Denied]:
    """What the controller must be allowed, and is not, by topic."""
    needed = controller_operations(names)
    for topic in permissions:
        operations = [operation for operation in needed.get(topic.name, ()) if _is_missing(topic, operation)]
        if operations:
            yield Denied(
                what=f"{link.principal} lacks the permission {' and '.join(operations)} on topic {topic.name}",
                remedy=f"Run: {acl_command(link, 'topic', topic.name, operations)}",
                tolerable=topic.name == names.beats,
            )


def _is_missing(topic: TopicPermissions, operation: Operation) -> bool:
    if topic.hidden:  # Read and Write include Describe; nothing is known about the others
        return operation in {"Read", "Write", "Describe"}
    return topic.allowed is not None and _KAFKA_NAMES[operation] not in topic.allowed


def describe_missing(link: KafkaLink, resource: Resource, name: str, operations: Sequence[Operation]) -> str:
    """The sentence about permissions that are missing; a cluster has no name."""
    what = f"{resource.replace('-', ' ')} {name}" if name else f"the {resource}"
    return (
        f"{link.principal} lacks the permission {' and '.join(operations)} on {what}. "
        f"Run: {acl_command(link, resource, name, operations)}"
    )


def describe_hidden_topic(link: KafkaLink, topic: str, operation: Operation) -> str:
    """The sentence about a topic that we do not see: Kafka hides topics that we may not even describe."""
    return (
        f"there is no topic {topic} at {link.bootstrap}: run `trimtab topics create`. If there is one, "
        f"{describe_missing(link, 'topic', topic, [operation])}"
    )


def acl_command(link: KafkaLink, resource: Resource, name: str, operations: Sequence[Operation]) -> str:
    """The command that grants the operations; an administrator of the brokers runs it."""
    asked = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {link.bootstrap} --add "
        f"--allow-principal '{link.principal}' {asked} --{resource} {name}"
    ).rstrip()
