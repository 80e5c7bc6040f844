"""Who may do what on a Pulsar with access control: the table of docs/security.md, and permissions made and taken back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming.pulsar.clients import AuthAction
from tests.live.driving import ROOT
from tests.live.pulsar.stage import PulsarStage


class Grant(NamedTuple):
    """What a role may do on a topic of trimtab's, by its name in the docs."""

    topic: str
    action: AuthAction


def documented(component: str) -> list[Grant]:
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
