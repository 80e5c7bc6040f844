"""A message in the form that a receiver takes."""

import hashlib
from collections.abc import Sequence
from typing import Any

from state.outputs import rfc3339
from streaming.notifier.notices import Notice
from streaming.settings.receivers import MessageFormat

SHOWN_NOTICES = 40
"""Notices in one message; Slack cuts a text off at 40,000 characters, and nobody reads more."""
_NEVER = "0001-01-01T00:00:00Z"
"""What Alertmanager writes for an alert that has not ended."""
_MARKS = {"info": "", "warning": ":warning: ", "critical": ":rotating_light: "}


def message(
    form: MessageFormat, receiver: str, notices: Sequence[Notice], left_out_count: int
) -> dict[str, Any]:
    """What is posted as JSON; ``left_out_count`` notices before these were left out."""
    if form == "slack":
        return _slack(notices, left_out_count)
    if form == "alertmanager":
        return _alertmanager(receiver, notices, left_out_count)
    return {
        "receiver": receiver,
        "left_out_count": left_out_count,
        "notices": [
            {
                "kind": each.kind,
                "cluster": each.cluster,
                "time": rfc3339(each.time_ms),
                "title": each.title,
                "text": each.text,
                "severity": each.severity,
                "ended": each.has_ended,
                "dry_run": each.dry_run,
                "labels": each.labels,
            }
            for each in notices
        ],
    }


def _slack(notices: Sequence[Notice], left_out_count: int) -> dict[str, Any]:
    """Source: Slack, "Sending messages using incoming webhooks": `&`, `<` and `>` are escaped."""
    lines = [
        f"{_MARKS[each.severity]}*{_escape(each.cluster)}* {_escape(each.title)}\n{_escape(each.text)}"
        for each in notices[:SHOWN_NOTICES]
    ]
    more = len(notices) - SHOWN_NOTICES
    if more > 0:
        lines.append(f"and {more} more: `trimtab actions tail` and `trimtab rounds tail` show them")
    if left_out_count:
        lines.append(f"{left_out_count} earlier notices were left out: max_per_hour_count is reached")
    return {"text": "\n".join(lines)}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alertmanager(receiver: str, notices: Sequence[Notice], left_out_count: int) -> dict[str, Any]:
    """Source: Alertmanager, `webhook_config`, version 4. What happens once is an alert that has ended at once."""
    alerts = [_alert(each) for each in notices]
    is_firing = any(each["status"] == "firing" for each in alerts)
    return {
        "version": "4",
        "groupKey": f"trimtab/{receiver}",
        "truncatedAlerts": left_out_count,
        "status": "firing" if is_firing else "resolved",
        "receiver": receiver,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": alerts,
    }


def _alert(notice: Notice) -> dict[str, Any]:
    labels = {
        "alertname": f"trimtab-{notice.kind}",
        "cluster": notice.cluster,
        "severity": notice.severity,
        **notice.labels,
    }
    lasts = bool(notice.key) and not notice.has_ended
    identity = f"{notice.cluster}/{notice.key or notice.title}/{'' if notice.key else notice.time_ms}"
    return {
        "status": "firing" if lasts else "resolved",
        "labels": labels,
        "annotations": {"summary": f"{notice.cluster}: {notice.title}", "description": notice.text},
        "startsAt": rfc3339(notice.time_ms),
        "endsAt": _NEVER if lasts else rfc3339(notice.time_ms),
        "generatorURL": "",
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }
