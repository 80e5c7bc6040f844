"""The roles of a broker in copies, each with a rate of its own: a leader sends, a follower receives (KIP-73), disks copy (KIP-113).

What is known of brokers is one mapping by role and broker. It is taken apart by role where Kafka or a message names the roles.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

ListRole = Literal["leader", "follower"]
Role = Literal[ListRole, "disk"]
LIST_ROLES: tuple[ListRole, ListRole] = ("leader", "follower")
"""Roles whose rate holds for the replicas on a topic's list; the rate of disks holds for all that a broker moves between them."""
ROLES: tuple[Role, ...] = (*LIST_ROLES, "disk")


class BrokerRole(NamedTuple):
    """One broker in one role."""

    role: Role
    broker: int

    def __str__(self) -> str:
        return f"{self.role}:{self.broker}"

    @classmethod
    def parse(cls, text: str) -> "BrokerRole":
        """The role that a text such as ``leader:101`` names."""
        name, _, broker = text.partition(":")
        return cls(next(role for role in ROLES if role == name), int(broker))

    @property
    def is_disk(self) -> bool:
        """Whether its rate is one of disks, which has nothing to do with those of the network."""
        return self.role == "disk"


V = TypeVar("V")


def by_role(
    leader: Mapping[int, V], follower: Mapping[int, V], disk: Mapping[int, V] = MappingProxyType({})
) -> dict[BrokerRole, V]:
    """One mapping of what is known by broker, in the order of ``ROLES``."""
    known = zip(ROLES, (leader, follower, disk), strict=True)
    return {BrokerRole(role, broker): value for role, values in known for broker, value in values.items()}


def of_role(values: Mapping[BrokerRole, V], role: Role) -> dict[int, V]:
    """The values of one role by broker."""
    return {key.broker: value for key, value in values.items() if key.role == role}


def brokers_of(roles: Iterable[BrokerRole], role: Role) -> list[int]:
    """The brokers that have one role."""
    return [key.broker for key in roles if key.role == role]
