"""How clusters are reached that are read and acted on: their admin API, encryption and users, and how often they are called.

Only ``trimtab collect`` and ``trimtab execute`` use targets; a controller knows clusters from their reports alone. A
target names the file or the variable that holds its token. Any other secret is a ``SecretStr``: it is printed as
asterisks everywhere, and no message quotes it. It is written in the settings file, in the environment, or in a file of its
own; no command takes one as an option, because everybody can read a process's arguments.
"""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Le, Predicate
from pydantic import SecretStr

from policies.bounds import Count, Positive, check_bounds

Protocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """How the connection is encrypted, and which user it belongs to. Files are PEM."""

    protocol: Protocol = "plaintext"
    """``ssl`` encrypts, ``sasl_plaintext`` names a user, ``sasl_ssl`` does both; the default is for a Kafka that
    requires neither. Kafka: ``security.protocol``."""
    ca_file: str | None = None
    """Certificates of the authorities that sign the brokers' certificates; unset = the authorities that the machine trusts.
    Kafka: ``ssl.truststore.certificates``."""
    certificate_file: str | None = None
    """Client certificate of trimtab with those between it and its authority, where brokers require one.
    Kafka: ``ssl.keystore.certificate.chain``."""
    key_file: str | None = None
    """The certificate's key, PKCS#8 and not encrypted: ``BEGIN PRIVATE KEY``. Kafka: ``ssl.keystore.key``."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """How the user is authenticated; with ``PLAIN`` the password itself is sent. Kafka: ``sasl.mechanism``."""
    username: str | None = None
    """The user. Kafka: ``sasl.jaas.config``."""
    password: SecretStr | None = None
    """The user's password; better in the environment than in the settings file. Kafka: ``sasl.jaas.config``."""
    password_file: str | None = None
    """File with the password, instead of ``password``; one line break at its end does not count."""

    def __post_init__(self) -> None:
        if not self.names_a_user:
            self._refuse("username", "password", "password_file", needed='"sasl_plaintext" or "sasl_ssl"')
        elif not self.username:
            raise ValueError(f"username is unset; protocol {self.protocol!r} needs one")
        elif (self.password is None) == (self.password_file is None):
            raise ValueError(
                f"protocol {self.protocol!r} needs either password or password_file, and not both"
            )
        if not self.encrypts:
            self._refuse("ca_file", "certificate_file", "key_file", needed='"ssl" or "sasl_ssl"')
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together: give both or neither")

    @property
    def encrypts(self) -> bool:
        """Whether the connection is TLS."""
        return self.protocol in {"ssl", "sasl_ssl"}

    @property
    def names_a_user(self) -> bool:
        """Whether the connection is SASL."""
        return self.protocol in {"sasl_plaintext", "sasl_ssl"}

    def _refuse(self, *names: str, needed: str) -> None:
        """Raise ValueError for a setting that the protocol does not use: it must not look as if it had an effect."""
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise ValueError(
                f"{given[0]} is set, but protocol {self.protocol!r} does not use it; set {needed}"
            )


def is_secret(kind: Any) -> bool:
    """Whether values of a type must not be shown."""
    return kind is SecretStr or SecretStr in get_args(kind)


TopicStatsWanted = Literal["hot", "all", "none"]

PORT_MAX = 65535
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
HOST_PORT = rf"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):{_PORT}"
PORTS = f"ports from 1 to {PORT_MAX}"
"""What is expected of the ports in addresses."""
_ADMIN_URL = re.compile(rf"https?://{HOST_PORT}(?:,{HOST_PORT})*/?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_Sweeps = Annotated[int, Ge(2)]


def require(accepted: object, name: str, value: object, expected: str) -> None:
    """Raise ValueError unless a setting's value is accepted."""
    if not accepted:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTarget:
    """A Pulsar cluster's admin API, as ``trimtab collect pulsar`` and ``trimtab execute pulsar`` use it."""

    admin_url: str = "http://127.0.0.1:8080"
    """Web service of the brokers, ``http://host:port[,host:port]`` or ``https://…``; several are tried in turn, and
    after them the brokers found through them. Pulsar: ``webServiceUrl`` of ``client.conf``."""
    token_file: str | None = None
    """File with the token of a super-user, read anew for every call so that it can be renewed; unset = no token.
    Pulsar: ``authParams`` ``file://…``."""
    token_env: str | None = None
    """Name of an environment variable with the token, instead of ``token_file``."""
    ca_file: str | None = None
    """Certificates (PEM) of the authorities that sign the brokers' certificates; unset = the authorities that the machine
    trusts. Host names are always verified. Pulsar: ``tlsTrustCertsFilePath``."""
    certificate_file: str | None = None
    """Client certificate (PEM) of trimtab, where brokers require one. Pulsar: ``tlsCertificateFilePath``."""
    key_file: str | None = None
    """The certificate's key (PEM). Pulsar: ``tlsKeyFilePath``."""
    web_port: Annotated[int, Ge(1), Le(PORT_MAX)] | None = None
    """Port of every broker's web service, where it is not the one in the brokers' ids (HTTPS beside HTTP); unset = that
    of the ids. Pulsar: ``webServicePortTls``."""
    timeout_s: Positive = 10.0
    """How long one call may take; ten times what a broker with 1,000 bundles needs."""
    concurrent_calls_count: Count = 64
    """Brokers called at the same time: slow and dead ones delay the others only if there are this many of them."""
    sweeps_per_round_count: _Sweeps = 2
    """How often each broker is read in a round, at least 2, so that one failed read leaves no gap."""
    topic_stats: TopicStatsWanted = "hot"
    """Bundles whose traffic is reported by topic: ``hot`` = those at half of a split limit (rate, throughput, topics or sessions) or
    more, and each broker's heaviest by rate and by throughput; ``all`` = every bundle; ``none`` = no bundle, so that no split can be
    computed."""
    cluster_interval_s: Positive = 300.0
    """Time between looks at isolation policies, anti-affinity groups and whether Pulsar balances by itself: each look
    makes a call for every namespace."""
    concurrent_actions_count: Count = 8
    """Actions carried out at the same time, beside a split none in its namespace; an unload disconnects the clients of a bundle. On three
    brokers, 4 at a time were 3 unloads a second, 8 were 6, and 16 or 32 were 8, with brokers that answered later and later."""
    verify_timeout_s: Positive = 30.0
    """How long an action may take to show in the cluster after the call; with live clients an unload needs a second."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(
            _ADMIN_URL.fullmatch(self.admin_url),
            "admin_url",
            _without_password(self.admin_url),
            f"http://host:port[,host:port] or https://…, {PORTS}",
        )
        if self.token_file is not None and self.token_env is not None:
            raise ValueError("token_file and token_env are both set: give one of them")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together: give both or neither")
        for name in ("ca_file", "certificate_file"):
            if getattr(self, name) is not None and not self.admin_url.startswith("https://"):
                raise ValueError(f"{name} is set, but admin_url is plain http: use https, or remove {name}")
        if self.token_env is not None:
            # The value is not quoted: a user who mistakes it for the token itself has put a secret there.
            require(_VARIABLE.fullmatch(self.token_env), "token_env", "(not shown)", "the name of a variable")


_METRICS_URL = re.compile(r"https?://(?:[^{}\s]|{host}|{broker})+")
_METRICS_PORT = re.compile(r"https?://[^/]*:([0-9]+)(?:/.*)?")
_COUNTER = re.compile(
    r'[A-Za-z_:][A-Za-z0-9_:]*(?:{[A-Za-z_]\w*="[^"\\\n]*"(?:,[A-Za-z_]\w*="[^"\\\n]*")*})?'
)
_BOOTSTRAP = re.compile(rf"{HOST_PORT}(?:,{HOST_PORT})*")
_Counters = Annotated[
    tuple[str, ...],
    Predicate(lambda counters: bool(counters) and all(map(_COUNTER.fullmatch, counters))),
    'one or more of name or name{label="value"}',
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTarget:
    """A Kafka cluster's admin API, as ``trimtab collect kafka`` and ``trimtab execute kafka`` use it."""

    bootstrap: Annotated[str, Predicate(_BOOTSTRAP.fullmatch), f"host:port[,host:port], {PORTS}"] = (
        "127.0.0.1:9092"
    )
    """Brokers to begin with, ``host:port[,host:port]``. Kafka: ``bootstrap.servers``."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    planned_file: str | None = None
    """Kafka's own ``reassignment.json`` of a move that is to be started, read anew in every sweep: its partitions are
    reported as planned, so that write rates are known and a throttle is set before it starts. Unset: none. No such file: none, with a warning."""
    metrics_url: str | None = None
    """Page of each broker with its counters in Prometheus' text format, as the JMX exporter serves it:
    ``http://{host}:7071/metrics``. ``{host}`` is the broker's advertised host, ``{broker}`` its id. It gives the broker's network
    traffic, so that a throttle can use what is free of ``[kafka.capacity]``; unset = not measured."""
    received_metrics: _Counters = (
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
    )
    """Counters on that page that add up to what a broker receives, as ``name`` or ``name{label="value"}``; all must be there. Series
    with a label ``topic`` are left out unless the label is named here, because the one without it is their sum. The default is what
    the JMX exporter's own rules for Kafka make of ``kafka.server:type=BrokerTopicMetrics``."""
    sent_metrics: _Counters = (
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
    )
    """The same for what a broker sends. Without rules the exporter's names are
    ``kafka_server_BrokerTopicMetrics_Count{name="BytesOutPerSec"}`` and the like."""
    timeout_s: Positive = 10.0
    """How long one call may take; a broker that is down takes this time in each sweep that calls it. A metrics page may
    take as long, and delays nothing."""
    sweeps_per_round_count: _Sweeps = 2
    """How often the cluster is read in a round, at least 2, so that one failed read leaves no gap. Write rates are
    measured over 5 s and more, so sweeps closer than that gain nothing."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.metrics_url is not None:
            require(
                _METRICS_URL.fullmatch(self.metrics_url) and re.search(r"{(host|broker)}", self.metrics_url),
                "metrics_url",
                _without_password(self.metrics_url),
                "http:// or https:// with {host} or {broker} in it, so that each broker has its own, and no other braces",
            )
            port = _METRICS_PORT.fullmatch(self.metrics_url)
            require(
                port is None or 1 <= int(port[1]) <= PORT_MAX,
                "metrics_url",
                _without_password(self.metrics_url),
                PORTS,
            )


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)


_NO_PULSAR, _NO_KAFKA = PulsarTarget(), KafkaTarget()
"""Stand for sections that are not in the settings. They are told by identity, because a section may spell out the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSection:
    """A cluster that is read and acted on; its name is that in its reports, and may differ from Pulsar's own."""

    pulsar: PulsarTarget = field(default_factory=lambda: _NO_PULSAR)
    kafka: KafkaTarget = field(default_factory=lambda: _NO_KAFKA)

    def has(self, system: Literal["pulsar", "kafka"]) -> bool:
        """Whether the settings have this section."""
        return self.pulsar is not _NO_PULSAR if system == "pulsar" else self.kafka is not _NO_KAFKA
