"""A real Kafka of one node on loopback that asks for TLS, a user and access control entries.

    with SecureKafka(tmp_path, users={"trimtab": "its password"}) as kafka:
        kafka.secure_bootstrap, kafka.ca_file      # SASL_SSL: PLAIN and SCRAM, nothing allowed at first
        kafka.certified_bootstrap                  # SSL, for clients with a certificate: kafka.certificate_of("trimtab")
        kafka.bootstrap                            # plaintext, a superuser: for the code that prepares a test

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
from deploy.local.processes import free_ports

_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureKafka(LocalKafka):
    """One broker with a SASL_SSL listener for `users` (name to password), and one for certificates in their names.

    These users are allowed nothing by default.
    """

    def __init__(self, directory: Path, *, users: Mapping[str, str]) -> None:
        super().__init__(directory, nodes=1)
        self._users = users
        self._secure_port = self._certified_port = 0
        self._authority = trustme.CA()

    @property
    def secure_bootstrap(self) -> str:
        """Address of the SASL_SSL listener, from the first `start` on."""
        return f"127.0.0.1:{self._secure_port}"

    @property
    def certified_bootstrap(self) -> str:
        """Address of the listener that asks for a certificate; its CN is the user."""
        return f"127.0.0.1:{self._certified_port}"

    def certificate_of(self, user: str) -> tuple[Path, Path]:
        """A certificate of ``user``, signed by the authority the broker trusts, and its key; both PEM."""
        issued = self._authority.issue_cert(f"{user}.test", common_name=user)
        certificate, key = (self.directory / f"{user}.{kind}.pem" for kind in ("certificate", "key"))
        certificate.write_bytes(chain_of(issued))
        key.write_bytes(key_of(issued))
        return certificate, key

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that signed the broker's."""
        return self.directory / "ca.pem"

    def _more_properties(self, node: Node) -> str:
        self._secure_port, self._certified_port = free_ports(2)
        self._make_certificates()
        clients = f"PLAINTEXT://127.0.0.1:{node.port},SASL_SSL://{self.secure_bootstrap},SSL://{self.certified_bootstrap}"
        own = {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{node.controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": self._plain_users(),
            **{
                f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": f"{_SCRAM_LOGIN} required;"
                for mechanism in _SCRAM
            },
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.directory / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
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
            for mechanism in _SCRAM
            for option in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def _make_certificates(self) -> None:
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        issued = self._authority.issue_cert("127.0.0.1")
        (self.directory / "broker.pem").write_bytes(key_of(issued) + chain_of(issued))


def chain_of(issued: trustme.LeafCert) -> bytes:
    """The certificate and those that signed it, as PEM."""
    return b"".join(each.bytes() for each in issued.cert_chain_pems)


def key_of(issued: trustme.LeafCert) -> bytes:
    """Kafka reads a key as PKCS#8 only (KIP-651), so the one trustme makes is written anew."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
