"""How a connection is encrypted and which user it belongs to.

A secret is a ``SecretStr``: it is printed as asterisks everywhere, and no message quotes it. It is written in
the settings file, in the environment, or in a file of its own; no command takes one as an option, because
everybody can read a process's arguments.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import SecretStr

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
        if self.names_a_user:
            self._require_a_user()
        else:
            self._refuse("username", "password", "password_file", needed='"sasl_plaintext" or "sasl_ssl"')
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

    def _require_a_user(self) -> None:
        if not self.username:
            raise ValueError(f"username is unset; protocol {self.protocol!r} needs one")
        if (self.password is None) == (self.password_file is None):
            raise ValueError(
                f"protocol {self.protocol!r} needs either password or password_file, and not both"
            )

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
