"""Who may do what on a Kafka with access control: the tables of docs/security.md, and entries made and taken back."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from tests.live.driving import ROOT, until
from tests.live.stage import QUICK, Stage
from tests.support.secure_kafka import SecureKafka

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
}
OPERATIONS = {
    "AlterConfigs": ACLOperation.ALTER_CONFIGS,
    "Create": ACLOperation.CREATE,
    "Describe": ACLOperation.DESCRIBE,
    "DescribeConfigs": ACLOperation.DESCRIBE_CONFIGS,
    "Read": ACLOperation.READ,
    "Write": ACLOperation.WRITE,
}


USERS = (
    "admin",
    "collector",
    "doctor",
    "executor",
    "hand",
    "maria",
    "onlooker",
    "operator",
    "pacer",
    "reader",
    "sender",
    "trimtab",
    "watcher",
)
"""Everybody that the Kafka with access control knows."""


class Entry(NamedTuple):
    """What one entry allows."""

    kind: str
    name: str
    operation: str

    @property
    def lacking(self) -> str:
        """How a refusal names it."""
        return f"lacks the permission {self.operation} on {self.kind.replace('-', ' ')} {self.name}"


def documented(component: str) -> list[Entry]:
    """The rows of a component's table in docs/security.md."""
    page = (ROOT / "docs" / "security.md").read_text()
    chapter = page.split(f"### {component}\n", 1)[1].split("\n##", 1)[0]
    rows = re.findall(r"^\| ([a-z-]+) `([^`]+)` \| ([A-Za-z, ]+) \|", chapter, flags=re.MULTILINE)
    found = [
        Entry(kind, name, operation)
        for kind, name, its in rows
        if kind in RESOURCES
        for operation in its.split(", ")
    ]
    assert found, f"docs/security.md has no permissions of {component}"
    return found


class Access:
    """The access list; a change is there when the call returns."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def allow(self, user: str, entries: Sequence[Entry]) -> None:
        made = self._admin.create_acls([ACL(*_terms(user, entry)) for entry in entries])
        assert not made["failed"], made
        for entry in entries:
            until(lambda entry=entry: self._has(user, entry), what=f"{user} to be allowed {entry}")

    def take_back(self, user: str, entry: Entry) -> None:
        self._admin.delete_acls([ACLFilter(*_terms(user, entry))])
        until(lambda: not self._has(user, entry), what=f"{user} not to be allowed {entry}")

    def _has(self, user: str, entry: Entry) -> bool:
        found, _ = self._admin.describe_acls(ACLFilter(*_terms(user, entry)))
        return bool(found)


def _terms(user: str, entry: Entry) -> tuple[object, ...]:
    pattern = ResourcePattern(RESOURCES[entry.kind], entry.name, ACLResourcePatternType.LITERAL)
    return f"User:{user}", "*", OPERATIONS[entry.operation], ACLPermissionType.ALLOW, pattern


def password_of(user: str) -> str:
    """The password of one of the users."""
    return f"{user}'s secret"


def by_password(secure: SecureKafka, stage: Stage, user: str, mechanism: str, *, section: str) -> str:
    """A section of the settings: `user`, whose password is in a file of its own."""
    secret = stage.directory / f"{user}.password"
    secret.write_text(f"{password_of(user)}\n")
    return f"""
[{section}]
protocol = "sasl_ssl"
mechanism = "{mechanism}"
ca_file = "{secure.ca_file}"
username = "{user}"
password_file = "{secret}"
"""


def by_certificate(secure: SecureKafka, user: str, *, section: str) -> str:
    """A section of the settings: `user`, which its certificate names."""
    certificate, key = secure.certificate_of(user)
    return f"""
[{section}]
protocol = "ssl"
ca_file = "{secure.ca_file}"
certificate_file = "{certificate}"
key_file = "{key}"
"""


def settings_of(secure: SecureKafka, stage: Stage, user: str, mechanism: str, *, more: str = "") -> Path:
    """A settings file of one user; ``more`` are further sections."""
    security = by_password(secure, stage, user, mechanism, section="input.security")
    url = f"kafka://{secure.secure_bootstrap}"
    return stage.settings(base=QUICK + security + more, file=f"{user}.toml", input__url=url)
