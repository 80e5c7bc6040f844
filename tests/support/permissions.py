"""Who may do what on a Kafka or Pulsar with access control: docs/security.md, what is granted and taken back, and events to try it with."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

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

from deploy.local.secure_kafka import SecureKafka
from streaming.pulsar.denied import AuthAction
from tests.streaming.golden import folders, messages
from tests.support.processes import ROOT, until
from tests.support.pulsar import PulsarStage
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


class Grant(NamedTuple):
    """What a role may do on a topic of trimtab's, by its name in the docs."""

    topic: str
    action: AuthAction


def granted(component: str) -> list[Grant]:
    """The row of a component."""
    page = (ROOT / "docs" / "security.md").read_text()
    (row,) = re.findall(rf"^\| `{re.escape(component)}`[^|]*\|([^|]*)\|([^|]*)\|$", page, flags=re.MULTILINE)
    actions: tuple[AuthAction, AuthAction] = ("produce", "consume")
    found = [
        Grant(topic, action)
        for action, cell in zip(actions, row, strict=True)
        for topic in re.findall(r"`([^`]+)`", cell)
    ]
    assert found, f"docs/security.md has no permissions of {component}"
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
        assert self.stage.lab is not None
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


CLUSTER = "east-1"
FOR_EVER = "2999-01-01T00:00:00.000Z"
GOLDEN = messages(folders()[-1])


def golden_action(kind: str, **data: object) -> dict[str, Any]:
    """A golden action for ``CLUSTER``, which is no dry-run and never expires."""
    event = json.loads(json.dumps(GOLDEN[f"trimtab.action.{kind}.v1"]))
    event |= {"id": uuid4().hex, "cluster": CLUSTER}
    event["data"] |= {"cluster": CLUSTER, "dry_run": False, "expires_at": FOR_EVER, **data}
    return dict(event)


def publish(stage: Stage, topic: str, event: dict[str, Any]) -> None:
    """Publish an event with epoch 1; returns when the brokers have it."""
    header = ("trimtab-epoch", b"1")
    stage.send_raw(CLUSTER.encode(), json.dumps(event).encode(), to=topic, headers=[header])
    stage.flush()


def decided(stage: Stage) -> dict[str, Any]:
    """An unload with the summary of its round, both published."""
    action = golden_action("unload")
    summary = json.loads(json.dumps(GOLDEN["trimtab.round.v1"])) | {"cluster": CLUSTER}
    summary["data"] |= {"cluster": CLUSTER, "round": action["data"]["round"]}
    publish(stage, stage.topics.actions, action)
    publish(stage, stage.topics.audit, summary)
    return action


def throttle_of(topic: str, *, number: int) -> dict[str, Any]:
    """The golden action for one topic of broker 1; each number has another rate and another entry to add."""
    return golden_action(
        "throttle",
        precondition={"reassignments": "planned"},
        add_leader_throttled_replicas={topic: f"0:{number}"},
        add_follower_throttled_replicas={},
        leader_rate_bytes_per_s={"1": number * 1_000_000},
        follower_rate_bytes_per_s={},
    )


def events_for_the_controller(stage: Stage, kind: str) -> list[dict[str, Any]]:
    """`data` of every event of a type on the input topic."""
    events = [json.loads(value) for value in stage.values(stage.topics.input)]
    return [event["data"] for event in events if event["type"] == kind]


def results(stage: Stage) -> list[dict[str, Any]]:
    """`data` of every result."""
    return events_for_the_controller(stage, "trimtab.action-result.v1")
