"""The two roles of a broker in a copy: a leader sends, a follower receives, and each role has a rate of its own; KIP-73.

What is known of brokers is one mapping by role and broker. It is taken apart by role where Kafka or a message names the roles.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

Role = Literal["leader", "follower"]
ROLES: tuple[Role, Role] = ("leader", "follower")


class BrokerRole(NamedTuple):
    """One broker as leader or as follower."""

    role: Role
    broker: int

    def __str__(self) -> str:
        return f"{self.role}:{self.broker}"

    @classmethod
    def parse(cls, text: str) -> "BrokerRole":
        """The role that a text such as ``leader:101`` names."""
        role, _, broker = text.partition(":")
        return cls("leader" if role == "leader" else "follower", int(broker))


V = TypeVar("V")


def by_role(leader: Mapping[int, V], follower: Mapping[int, V]) -> dict[BrokerRole, V]:
    """One mapping of what is known by broker, leaders first."""
    sides: tuple[tuple[Role, Mapping[int, V]], ...] = (("leader", leader), ("follower", follower))
    return {BrokerRole(role, broker): value for role, values in sides for broker, value in values.items()}


def of_role(values: Mapping[BrokerRole, V], role: Role) -> dict[int, V]:
    """The values of one role by broker."""
    return {key.broker: value for key, value in values.items() if key.role == role}


def brokers_of(roles: Iterable[BrokerRole], role: Role) -> list[int]:
    """The brokers that have one role."""
    return [key.broker for key in roles if key.role == role]
