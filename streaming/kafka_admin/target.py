"""From a target of the settings to a connection to its admin API."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaAdminClient

from streaming.kafka_admin.connection import ClusterError, connected
from streaming.settings import KafkaTarget
from streaming.settings.security import SecuritySettings

_FILES = {"ca_file": "ssl_cafile", "certificate_file": "ssl_certfile", "key_file": "ssl_keyfile"}


@contextmanager
def admin_of(target: KafkaTarget) -> Iterator[KafkaAdminClient]:
    """An admin client of the cluster, closed at the end. Raises ``ClusterError``."""
    with connected(
        target.bootstrap,
        {**security_options(target.security), "request_timeout_ms": round(1000 * target.timeout_s)},
    ) as admin:
        yield admin


def security_options(security: SecuritySettings) -> dict[str, object]:
    """For any client of kafka-python. Raises ``ClusterError`` for a password file that cannot be read."""
    found: dict[str, object] = {"security_protocol": security.protocol.upper()}
    if security.encrypts:
        for name, option in _FILES.items():
            if getattr(security, name) is not None:
                found[option] = getattr(security, name)
    if security.names_a_user:
        found["sasl_mechanism"] = security.mechanism
        found["sasl_plain_username"] = security.username
        found["sasl_plain_password"] = _password(security)
    return found


def _password(security: SecuritySettings) -> str:
    if security.password is not None:
        return security.password.get_secret_value()
    try:
        text = Path(str(security.password_file)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"password_file {security.password_file} cannot be read: {error}") from error
    return text.removesuffix("\n").removesuffix("\r")
