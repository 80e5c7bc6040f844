"""Who may do what on a Kafka or Pulsar with access control: docs/run/security.md, what is granted and taken back, and events to try it with."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
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

from streaming.pulsar.clients import AuthAction
from streaming.settings import TopicNames
from tests.support.processes import ROOT, until
from tests.support.pulsar import PulsarStage
from tests.support.secure_kafka import SecureKafka
from tests.support.stage import QUICK, Stage

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
    *("admin", "collector", "doctor", "executor", "hand", "onlooker", "operator", "pacer"),
    *("reader", "sender", "trimtab"),
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
    """The rows of a component's table in docs/run/security.md."""
    page = (ROOT / "docs" / "run" / "security.md").read_text()
    chapter = page.split(f"### {component}\n", 1)[1].split("\n##", 1)[0]
    rows = re.findall(r"^\| ([a-z-]+) `([^`]+)` \| ([A-Za-z, ]+) \|", chapter, flags=re.MULTILINE)
    found = [
        Entry(kind, name, operation)
        for kind, name, its in rows
        if kind in RESOURCES
        for operation in its.split(", ")
    ]
    assert found, f"docs/run/security.md has no permissions of {component}"
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


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who comes with a password, and what he or she may do on the topics of a stage."""

    name: str
    mechanism: str
    secure: SecureKafka
    stage: Stage
    access: Access

    def settings(self, *, more: str = "") -> Path:
        """A settings file of this user; ``more`` are further sections."""
        url = f"kafka://{self.secure.secure_bootstrap}"
        base = QUICK + self._by_password("input.security") + more
        return self.stage.settings(base=base, file=f"{self.name}.toml", input__url=url)

    def target(self, cluster: str, *lines: str) -> str:
        """A section of the settings: the Kafka as the cluster that this user reads or acts on."""
        section = f'targets."{cluster}".kafka'
        reached = (f"[{section}]", f'bootstrap = "{self.secure.secure_bootstrap}"', *lines)
        return "\n".join(reached) + "\n" + self._by_password(f"{section}.security")

    def by_certificate(self, section: str) -> str:
        """A section of the settings: the user that its certificate names."""
        certificate, key = self.secure.certificate_of(self.name)
        return f"""
[{section}]
protocol = "ssl"
ca_file = "{self.secure.ca_file}"
certificate_file = "{certificate}"
key_file = "{key}"
"""

    def _by_password(self, section: str) -> str:
        secret = self.stage.directory / f"{self.name}.password"
        secret.write_text(f"{password_of(self.name)}\n")
        return f"""
[{section}]
protocol = "sasl_ssl"
mechanism = "{self.mechanism}"
ca_file = "{self.secure.ca_file}"
username = "{self.name}"
password_file = "{secret}"
"""

    def entries(self, component: str) -> list[Entry]:
        """The documented entries, for this stage's topics."""
        names = dict(zip(asdict(TopicNames()).values(), asdict(self.stage.topics).values(), strict=True))
        return [entry._replace(name=names.get(entry.name, entry.name)) for entry in documented(component)]

    def lacks(self, entry: Entry) -> str:
        """How a refusal names the entry."""
        return f"User:{self.name} {entry.lacking}"

    def one_less(self, component: str) -> Iterator[str]:
        """Allow what the component needs, and yield how a refusal names each entry while it is taken back."""
        self.access.allow(self.name, self.entries(component))
        for entry in self.entries(component):
            self.access.take_back(self.name, entry)
            yield self.lacks(entry)
            self.access.allow(self.name, [entry])


class Grant(NamedTuple):
    """What a role may do on a topic of trimtab's, by its name in the docs."""

    topic: str
    action: AuthAction


def granted(component: str) -> list[Grant]:
    """The row of a component."""
    page = (ROOT / "docs" / "run" / "security.md").read_text()
    (row,) = re.findall(rf"^\| `{re.escape(component)}`[^|]*\|([^|]*)\|([^|]*)\|$", page, flags=re.MULTILINE)
    actions: tuple[AuthAction, AuthAction] = ("produce", "consume")
    found = [
        Grant(topic, action)
        for action, cell in zip(actions, row, strict=True)
        for topic in re.findall(r"`([^`]+)`", cell)
    ]
    assert found, f"docs/run/security.md has no permissions of {component}"
    return found


@dataclass(slots=True)
class Role:
    """A role's permissions on the topics of a stage."""

    stage: PulsarStage
    name: str
    _granted: set[Grant] = field(init=False, default_factory=set)

    def topic(self, grant: Grant) -> str:
        """The full name of the topic of a grant."""
        return self.stage.full_name(f"{grant.topic}.{self.stage.name}")

    def command(self, grant: Grant) -> str:
        """The command that a refusal says to run."""
        asked = f"--role ROLE --actions {grant.action}"
        return f"Run: pulsar-admin topics grant-permission {self.topic(grant)} {asked}"

    def one_less(self, grants: Sequence[Grant]) -> Iterator[Grant]:
        """Yield each grant while it is taken back; all of them are there at the end."""
        for lacking in grants:
            self.allow(grant for grant in grants if grant != lacking)
            yield lacking
        self.allow(grants)

    def allow(self, grants: Iterable[Grant]) -> None:
        """Allow these grants and no others."""
        wanted = {*grants}
        for topic in sorted({grant.topic for grant in self._granted ^ wanted}):
            actions = sorted(grant.action for grant in wanted if grant.topic == topic)
            name = self.topic(Grant(topic, "consume")).removeprefix("persistent://")
            path = f"persistent/{name}/permissions/{self.name}"
            if actions:
                self.stage.lab.post(path, actions)
            else:
                self.stage.lab.delete(path)
        self._granted = wanted
