"""A real standalone Pulsar on loopback that asks for a token, and speaks TLS to clients and on its admin API too.

    with SecurePulsar(tmp_path) as pulsar:
        pulsar.secure_service_url, pulsar.secure_admin_url, pulsar.ca_file
        pulsar.token_of("admin")                                               # "admin" is the super-user

Certificates are made for the run by an authority of its own (trustme), tokens are JSON web tokens signed with a key of
the run (HS256), as `pulsar tokens create` makes them.

WARNING: for tests only; the plain ports ask for a token as well.
"""

import base64
import hashlib
import hmac
import json
import secrets
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
import trustme

from deploy.local.processes import free_ports
from deploy.local.pulsar import StandalonePulsar
from deploy.local.pulsar_settings import LoadManager
from tests.support.secure_kafka import chain_of, key_of

SUPER_USER = "admin"
"""The only role that may do everything."""
_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


class SecurePulsar(StandalonePulsar):
    """One broker; its only super-user is ``admin``."""

    def __init__(self, directory: Path, *, load_manager: LoadManager = "modular") -> None:
        super().__init__(directory, load_manager=load_manager)
        self._key = secrets.token_bytes(32)
        self._secure_port = 0
        self._secure_service_port = 0

    @property
    def secure_service_url(self) -> str:
        """`pulsar+ssl://127.0.0.1:port`, for clients."""
        return f"pulsar+ssl://127.0.0.1:{self._secure_service_port}"

    @property
    def secure_admin_url(self) -> str:
        """`https://127.0.0.1:port`."""
        return f"https://127.0.0.1:{self._secure_port}"

    @property
    def secure_port(self) -> int:
        """Port of the admin API over TLS; the broker's id has the plain one."""
        return self._secure_port

    @property
    def ca_file(self) -> Path:
        """Certificate of the authority that signed the broker's."""
        return self.directory / "ca.pem"

    def token_of(self, role: str) -> str:
        """A token that never expires."""
        signed = f"{_encode({'alg': 'HS256'})}.{_encode({'sub': role})}"
        signature = hmac.new(self._key, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{_base64url(signature)}"

    def token_file(self, role: str) -> Path:
        """A file with ``token_of(role)``."""
        file = self.directory / f"{role}.token"
        file.write_text(f"{self.token_of(role)}\n")
        return file

    def configure(self) -> None:
        self._secure_port, self._secure_service_port = free_ports(2)
        self._make_certificates()
        self._extra = {
            "webServicePortTls": self._secure_port,
            "brokerServicePortTls": self._secure_service_port,
            "tlsCertificateFilePath": self.directory / "broker.pem",
            "tlsKeyFilePath": self.directory / "key.pem",
            "authenticationEnabled": "true",
            "authenticationProviders": _AUTHENTICATION,
            "authorizationEnabled": "true",
            "superUserRoles": SUPER_USER,
            "tokenSecretKey": f"data:;base64,{base64.b64encode(self._key).decode()}",
            "brokerClientAuthenticationPlugin": _CLIENT,
            "brokerClientAuthenticationParameters": f"token:{self.token_of(SUPER_USER)}",
        }
        super().configure()

    def start_all(self) -> None:
        self.processes["standalone"].launch()
        self.wait_for("Pulsar", self._is_healthy)

    def _is_healthy(self) -> bool:
        context = ssl.create_default_context(cafile=self.ca_file)
        headers = {"Authorization": f"Bearer {self.token_of(SUPER_USER)}"}
        with (
            suppress(httpx.HTTPError),
            httpx.Client(verify=context, headers=headers, trust_env=False, timeout=5) as client,
        ):
            found = client.get(f"{self.secure_admin_url}/admin/v2/namespaces/public")
            is_complete = found.is_success and "public/default" in found.json()
            return is_complete and client.get(f"{self.secure_admin_url}/admin/v2/brokers/health").is_success
        return False

    def _make_certificates(self) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(str(self.ca_file))
        (self.directory / "key.pem").write_bytes(key_of(issued))
        (self.directory / "broker.pem").write_bytes(chain_of(issued))


def _encode(part: dict[str, str]) -> str:
    return _base64url(json.dumps(part).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
