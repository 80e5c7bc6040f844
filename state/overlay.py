"""What an operator has set for one cluster: the data of a control event, in the message, in memory and in a command.

Only values; from which round on an event holds is in ``state.control``, what maintenance and drains lead to in ``state.pulsar``.
Its times are whole milliseconds in UTC once ``streaming.contract.decode`` has read them.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_NAME_CHARACTERS = 2048
"""Longest name, id or subject that is accepted, because every message about it has to fit in a record."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Time = Annotated[datetime, Meta(tz=True)]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    return (moment - _EPOCH) // _MS


def moment_at(time_ms: int) -> datetime:
    """A time in milliseconds since the epoch."""
    return _EPOCH + time_ms * _MS


class MaintenanceWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Since when, until when and why a broker or namespace is under maintenance, or a broker is drained."""

    since: Time
    """When it was asked for."""
    until: Time | None = None
    """When it ends by itself: it applies to rounds that begin before, and to executors until then. Null: a person ends it."""
    who: str | None = None
    """Who asked for it."""
    why: str | None = None
    """The reason."""

    def holds_at(self, moment: datetime) -> bool:
        """Whether it applies at that time, or to a round that begins then."""
        return self.until is None or moment < self.until


class ControlData(msgspec.Struct, frozen=True):
    """The whole overlay of one cluster; a newer event replaces all of it."""

    paused: bool = False
    """Hold every action; the policies go on counting."""
    mode: Literal["dry-run", "act"] | None = None
    """Overrides `controller.mode`; null: as configured."""
    settings: dict[str, object] = {}
    """Values for any keys of the cluster's settings except the rounds, e.g. `{"pulsar": {"avg_shedder": {…}}}`."""
    who: str | None = None
    """Who asked for it; shown in the round summaries."""
    why: str | None = None
    """The reason; shown there too."""
    resumed_at: Time | None = None
    """When a person confirmed that the cause of failed actions is fixed; not after the event's own time. A cluster that has
    been held as `failing` since before this time acts again. Later events repeat the value, which changes nothing."""
    until: Time | None = None
    """When the pause ends by itself: it applies to rounds that begin before, and to executors until then. Null: a person ends it."""
    forget: bool = False
    """Start again with an empty memory of the cluster: with the first round that the event applies to, or at once if the cluster
    has been silent for longer than `max_report_age_s`. What the newest `trimtab.pulsar.cluster.v1` says and a Kafka throttle that
    trimtab set stay known, unless the cluster is silent. The rest of the event applies as usual; later events do not repeat it."""
    maintenance_brokers: dict[Text, MaintenanceWindow] = {}
    """Brokers under maintenance, by broker id: they are neither source nor destination, and their reports are not missed. Only for
    Pulsar clusters, like the next two fields."""
    maintenance_namespaces: dict[Text, MaintenanceWindow] = {}
    """Namespaces under maintenance, by `tenant/namespace`: their bundles stay where they are."""
    drained_brokers: dict[Text, MaintenanceWindow] = {}
    """Brokers that are emptied, by broker id; when they are empty, they are treated as under maintenance."""
    approval: Literal["none", "required"] | None = None
    """Overrides `controller.approval`; null: as configured. Senders that do not know this field leave it out."""

    def is_paused_at(self, moment: datetime) -> bool:
        """Whether it holds every action at that time, or of a round that begins then."""
        return self.paused and (self.until is None or moment < self.until)

    def at(self, moment: datetime) -> "ControlData":
        """What of it holds then: without a pause, maintenance or drain that has ended by itself."""
        is_over = self.until is not None and self.until <= moment
        return msgspec.structs.replace(
            self,
            paused=self.paused and not is_over,
            until=None if is_over else self.until,
            maintenance_brokers=_holding(self.maintenance_brokers, moment),
            maintenance_namespaces=_holding(self.maintenance_namespaces, moment),
            drained_brokers=_holding(self.drained_brokers, moment),
        )

    @property
    def has_maintenance(self) -> bool:
        """Whether anything is under maintenance, or drained."""
        return bool(self.maintenance_brokers or self.maintenance_namespaces or self.drained_brokers)

    @property
    def apart(self) -> frozenset[str]:
        """Brokers that take no part in balancing."""
        return frozenset({*self.maintenance_brokers, *self.drained_brokers})

    @property
    def changes_anything(self) -> bool:
        """Whether the cluster is not as the settings file says."""
        return bool(self.paused or self.mode or self.approval or self.has_maintenance or self.settings)

    @property
    def settings_json(self) -> bytes:
        """``settings`` as a JSON object, canonical."""
        return msgspec.json.encode(self.settings, order="sorted")


def _holding(windows: dict[str, MaintenanceWindow], moment: datetime) -> dict[str, MaintenanceWindow]:
    return {name: window for name, window in sorted(windows.items()) if window.holds_at(moment)}
