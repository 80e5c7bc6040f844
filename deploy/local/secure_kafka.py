"""A real Kafka of one node on loopback that asks for TLS, a user and access control entries.

    with SecureKafka(tmp_path, users={"trimtab": "its password"}) as kafka:
        kafka.secure_bootstrap, kafka.ca_file      # SASL_SSL: PLAIN and SCRAM-SHA-512, nothing allowed at first
        kafka.bootstrap                            # plaintext, a superuser: for whoever sets the stage

Certificates are made for the run by an authority of its own (trustme); access control is Kafka's StandardAuthorizer.

WARNING: the plaintext listener is a superuser, on loopback, so that entries can be made at all. For tests only.
"""

from collections.abc import Mapping
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from deploy.local.kafka import LocalKafka, Node
from deploy.local.ports import free_ports

__all__ = ["SecureKafka"]

_MECHANISMS = "PLAIN,SCRAM-SHA-512"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureKafka(LocalKafka):
    """One broker with a SASL_SSL listener for `users` (name to password), who are allowed nothing by default."""

    def __init__(self, directory: Path, *, users: Mapping[str, str]) -> None:
        super().__init__(directory, nodes=1)
        self._users = users
        self._secure_port = 0

    @property
    def secure_bootstrap(self) -> str:
        """Address of the SASL_SSL listener, from the first `start` on."""
        return f"127.0.0.1:{self._secure_port}"

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that signed the broker's."""
        return self._directory / "ca.pem"

    def _more_properties(self, node: Node) -> str:
        self._secure_port = free_ports(1)[0]
        self._make_certificates()
        plain, secure = f"127.0.0.1:{node.port}", f"127.0.0.1:{self._secure_port}"
        controller = f"CONTROLLER://127.0.0.1:{node.controller_port}"
        own = {
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{secure},{controller}",
            "advertised.listeners": f"PLAINTEXT://{plain},SASL_SSL://{secure}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": _MECHANISMS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": self._plain_users(),
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_SCRAM_LOGIN} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._directory / "broker.pem",
        }
        return "".join(f"{key}={value}\n" for key, value in own.items())

    def _plain_users(self) -> str:
        entries = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        return f"{_PLAIN_LOGIN} required {entries};"

    def _format_options(self) -> list[str]:
        """SCRAM's users are part of the cluster's metadata (KIP-900)."""
        return [
            option
            for name, password in self._users.items()
            for option in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]")
        ]

    def _make_certificates(self) -> None:
        """Kafka reads a key as PKCS#8 only (KIP-651), so the one trustme makes is written anew."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(str(self.ca_file))
        key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        store = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain
        (self._directory / "broker.pem").write_bytes(store)
