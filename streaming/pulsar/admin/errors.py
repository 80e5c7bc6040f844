"""What can go wrong when Pulsar's admin API is called, each kind with its remedy."""

from collections.abc import Mapping
from typing import Literal

Failure = Literal[
    "unauthorized",
    "forbidden",
    "not-found",
    "conflict",
    "refused",
    "broker-failed",
    "busy",
    "redirect-loop",
    "unreachable",
    "untrusted",
    "no-answer",
    "not-pulsar",
]
"""Every kind of failure; each is the value of a metric's label."""

PASSING: frozenset[Failure] = frozenset(
    {"unreachable", "no-answer", "broker-failed", "busy", "redirect-loop"}
)
"""Failures that may be over at the next call."""

_BY_STATUS: Mapping[int, Failure] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    412: "refused",
    429: "busy",
}

_REMEDIES: Mapping[Failure, str] = {
    "unauthorized": "the token is missing, expired or of another cluster: check token_file or token_env of the target; "
    "Pulsar answers the same to a role that lacks the permission. A target's role must be a super-user (broker.conf "
    "superUserRoles)",
    "forbidden": "the token's role lacks the permission. A target's role must be a super-user (broker.conf superUserRoles)",
    "not-found": "Pulsar does not know it (any more), or the address is not that of an admin API",
    "conflict": "something else changed it at the same time, or the destination is not alive",
    "refused": "Pulsar cannot carry out the request in the cluster's present state; read the cluster again before "
    "retrying",
    "broker-failed": "the broker's log says more; the failure often passes, so try again",
    "busy": "the broker limits requests (httpRequestsMaxPerSecond): ask less often",
    "redirect-loop": "brokers redirect the request to each other: ownership or leadership is changing, or their "
    "advertised addresses are wrong",
    "unreachable": "check admin_url and whether the broker runs and can be reached from here",
    "untrusted": "the broker's certificate is not signed by an authority of ca_file, has expired, or is for another name: "
    "check ca_file, admin_url and the broker's certificate",
    "no-answer": "the request may have been carried out all the same: check that; a larger timeout_s waits longer",
    "not-pulsar": "the address answers, but not as Pulsar's admin API does: check admin_url",
}


class AdminError(Exception):
    """A call of the admin API failed; the text names the call, what was answered, and the remedy.

    ``failure`` is the kind, ``status`` the HTTP status (None without an answer), ``answer`` what the broker answered.
    Tokens are never part of it.
    """

    def __init__(self, failure: Failure, *, call: str, answer: str, status: int | None = None) -> None:
        answered = f"{status}: {answer}" if status is not None else answer
        super().__init__(f"{call}: {answered}. Remedy: {_REMEDIES[failure]}")
        self.failure = failure
        self.status = status
        self.answer = answer


def failure_of_status(status: int) -> Failure:
    """The kind of failure an HTTP status of 300 or more stands for."""
    return _BY_STATUS.get(status, "broker-failed")
