"""Explains what Pulsar refuses: the permission that is missing, and the command that grants it.

Permissions belong to a token's role, and we cannot read the role from the token: the commands say ROLE.
docs/security.md has the permissions of every component.
"""

from typing import Literal

import pulsar

from streaming.pulsar.admin import AdminError

AuthAction = Literal["produce", "consume"]
"""Actions as ``pulsar-admin topics grant-permission`` spells them."""

_UNAUTHORIZED = "Unauthorized to validate"
"""The admin API's words if a role lacks a permission, with status 401 or 403; for a bad token it has other words."""


def explain_denied(error: Exception, topic: str, action: AuthAction) -> str:
    """The missing permission, if the error is about one, and otherwise Pulsar's own words. ``topic`` is a full name."""
    if not is_denied(error):
        return repr(error) if isinstance(error, pulsar.PulsarException) else str(error)
    return (
        f"the token's role lacks the permission {action} on {topic}. "
        f"Run: pulsar-admin topics grant-permission {topic} --role ROLE --actions {action}"
    )


def explain_administrator(error: AdminError, namespace: str) -> str | None:
    """The sentence for a call that only an administrator of the tenant may make; None if the error is about something else."""
    if not is_denied(error):
        return None
    tenant = namespace.partition("/")[0]
    return (
        f"{error.answer}. The token's role must be an administrator of the tenant {tenant}, because trimtab reads "
        f"topics and their policies. Run: pulsar-admin tenants update {tenant} --admin-roles ROLE (with the "
        "present roles, too: the command replaces the list)"
    )


def is_denied(error: Exception) -> bool:
    """Whether the role of the token lacks a permission."""
    if isinstance(error, AdminError):
        return _UNAUTHORIZED in error.answer
    return isinstance(error, pulsar.AuthorizationError)
