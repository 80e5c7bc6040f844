"""The receivers of ``trimtab notify``: what each one gets, and how often. Only that program uses them.

An address of a webhook is often a secret, so it may be in a file or in an environment variable.
"""

import re
from dataclasses import dataclass
from typing import Literal

NoticeKind = Literal["decisions", "proposals", "holds", "findings", "failures"]
MessageFormat = Literal["slack", "alertmanager", "json"]

_URL = re.compile(r"https?://[^\s/]+(?:/\S*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GIVE_UP_S_MAX = 240.0


def _require(accepted: object, name: str, value: object, expected: str) -> None:
    if not accepted:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """A webhook to which ``trimtab notify`` sends messages."""

    url: str | None = None
    """Where messages are posted, ``http://…`` or ``https://…``. One of url, url_file and url_env is needed."""
    url_file: str | None = None
    """File with the address, read anew for every message, because the address of a webhook is often a secret."""
    url_env: str | None = None
    """Name of an environment variable with the address."""
    format: MessageFormat = "json"
    """``slack``: an object with a ``text``, which Slack, Mattermost, Rocket.Chat and others take. ``alertmanager``: what Alertmanager
    posts to its own webhooks, version 4. ``json``: an object with a list of notices."""
    kinds: tuple[NoticeKind, ...] = ("decisions", "proposals", "holds", "findings", "failures")
    """Kinds of notices that are sent. ``decisions``: actions; ``proposals``: actions that wait for approval, with the command
    that approves them; ``holds``: a pause, a failing cluster and other reasons why nothing moves although it should;
    ``findings``: problems that no action can solve; ``failures``: actions that failed or had no effect, and internal errors."""
    clusters: tuple[str, ...] = ()
    """Clusters whose notices are sent; empty = all."""
    dry_run: bool = False
    """Whether decisions of a dry-run are sent, too."""
    max_per_hour_count: int = 30
    """Largest number of messages within an hour; notices above that are left out, and the next message says how many. A message has all
    notices that came at once. 0 = no limit."""
    repeat_after_s: float = 21600.0
    """Time after which a hold or a finding that lasts is sent again; six hours. 0 = in every round."""
    timeout_s: float = 10.0
    """How long one attempt may take."""
    give_up_after_s: float = 60.0
    """How long trimtab tries to send a message; then it is dropped, counted and logged. At most 240, because nothing else is
    sent meanwhile."""

    def __post_init__(self) -> None:
        given = [name for name in ("url", "url_file", "url_env") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'no address'} given; set one of url, url_file and url_env"
            )
        if self.url is not None and _URL.fullmatch(self.url) is None:
            raise ValueError("url is no address; expected http://… or https://…")
        if self.url_env is not None and _VARIABLE.fullmatch(self.url_env) is None:
            raise ValueError("url_env is (not shown); expected the name of a variable")
        _require(self.kinds, "kinds", self.kinds, "one kind or more")
        _require(self.max_per_hour_count >= 0, "max_per_hour_count", self.max_per_hour_count, "0 or more")
        _require(self.repeat_after_s >= 0, "repeat_after_s", self.repeat_after_s, "0 or more")
        _require(self.timeout_s > 0, "timeout_s", self.timeout_s, "more than 0")
        _require(
            0 < self.give_up_after_s <= _GIVE_UP_S_MAX,
            "give_up_after_s",
            self.give_up_after_s,
            f"more than 0 and at most {_GIVE_UP_S_MAX:g}",
        )
