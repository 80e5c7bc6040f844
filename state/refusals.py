"""Why an event is refused, for reasons that only the cluster's memory or settings show."""

from policies.wording import digits
from state import systems
from state.events import Approval, Control, Coordinates, Event, Rejection
from state.memory import Header
from state.outputs import rfc3339
from state.settings import OverlayError, RoundSettings, SettingsSource


def refuse(
    event: Event, where: Coordinates, header: Header, cluster: str, settings: SettingsSource
) -> Rejection | None:
    """Why an event of this cluster is refused; None if it is taken."""
    if isinstance(event, Approval):
        return _refuse_approval(where.partition, header)
    limits = systems.limits_for(event, header.system, settings.base(cluster))
    ahead = _refuse_ahead(event, where.appended_ms, limits)
    if ahead is not None or not isinstance(event, Control):
        return ahead or _refuse_stranger(event, where.partition, header, limits)
    return _refuse_overlay(event, cluster, settings) or systems.refuse_maintenance(event, header.system)


def _refuse_ahead(event: Event, appended_ms: int | None, limits: RoundSettings) -> Rejection | None:
    if appended_ms is not None and limits.is_ahead(event.time_ms, appended_ms):  # a log may have no times
        return Rejection(
            reason="ahead-of-log",
            detail=f"time {rfc3339(event.time_ms)} is {digits((event.time_ms - appended_ms) / 1000)} s ahead of the "
            f"log, at most {digits(limits.max_ahead_s)} s are allowed: set the sender's clock",
        )
    return None


def _refuse_stranger(
    event: Event, partition: int | None, header: Header, limits: RoundSettings
) -> Rejection | None:
    """Why an event does not belong to this cluster: it is of the other system, or not from the partition of the cluster's records."""
    wrong = systems.wrong_system(event, header.system)
    if wrong is not None:
        return wrong
    known, newest = header.partition, header.newest_ms
    if partition is None or known is None or newest is None or partition == known:
        return None
    if event.time_ms - newest > limits.max_report_age_ms:
        return None
    return _wrong_partition(partition, known)


def _refuse_approval(partition: int | None, header: Header) -> Rejection | None:
    """Why an approval is refused.

    Its time is not checked, because it is a laptop's. Its place in the log decides when it counts, so it has to be in the cluster's
    partition.
    """
    if not header.is_known or header.system == "kafka":
        return Rejection(
            reason="wrong-system" if header.is_known else "unknown-cluster",
            detail="proposals are made for Pulsar clusters, and no report says that this is one: see the cluster's name",
        )
    known = header.partition
    if partition is None or known is None or partition == known:
        return None
    return _wrong_partition(partition, known)


def _refuse_overlay(event: Control, cluster: str, settings: SettingsSource) -> Rejection | None:
    try:
        settings.overlaid(cluster, event.data.settings_json)
    except OverlayError as error:
        return Rejection(reason=error.reason, detail=str(error))
    return None


def _wrong_partition(partition: int, known: int) -> Rejection:
    return Rejection(
        reason="wrong-partition",
        detail=f"partition {partition}, but this cluster's records come in partition {known}: "
        f"use the cluster's name as the record key",
    )
