"""What is in force for one cluster: its section of the file, and a control event's overlay over it.

Pure and picklable: it travels to Spark's workers, and equal arguments give equal settings there, in replay and after
a restart. It never reads files or the environment.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from state.events import System
from state.layouts import FRESH
from state.outputs import Configured
from state.settings import ClusterSettings, OverlayError
from streaming.settings.catalog import Problem, SettingsError
from streaming.settings.load import read_tree, show
from streaming.settings.sections import ClusterSection, Settings, Tree, merge
from streaming.settings.zones import UnknownZone, resolve_zones

OVERLAYS_CACHED_COUNT = 1024
"""How many overlays are remembered as settings: one is in force per cluster, so enough for this many clusters."""


class ClusterSettingsSource:
    """The settings of every cluster, whether or not the file names it; a ``state.settings.SettingsSource``.

    An operator's command gives it what rounds have shown of their controllers, ``shown``: where the settings can be made from
    that, they are in place of those of ``settings``, which may be another file than the controller's.
    """

    def __init__(
        self, settings: Settings, shown: Mapping[str, tuple[System, Configured]] = MappingProxyType({})
    ) -> None:
        self._default = _cluster_settings(settings)
        self._named = {name: _cluster_settings(section) for name, section in settings.clusters.items()}
        self._configured: dict[str, Configured] = {}
        for cluster, (system, configured) in shown.items():
            made = _make(system, configured)
            if made is not None:
                self._named[cluster], self._configured[cluster] = made, configured
        self._forget()

    def configured(self, cluster: str) -> Configured | None:
        """What the cluster's controller is configured with; None where no round has shown it in full, or of another version."""
        return self._configured.get(cluster)

    def base(self, cluster: str) -> ClusterSettings:
        """Defaults, file and environment, with the file's section of the cluster over them."""
        return self._named.get(cluster, self._default)

    def forget_after_s(self, cluster: str) -> float:
        """Seconds of silence after which a cluster counts as gone, whichever system it is; infinite where that is off."""
        base = self.base(cluster)
        after_s = (base.pulsar.rounds.forget_cluster_s, base.kafka.rounds.forget_cluster_s)
        return max(after_s) if all(after_s) else math.inf

    def overlaid(self, cluster: str, overlay: bytes) -> ClusterSettings:
        """``base`` with ``{"pulsar": {…}, "kafka": {…}}`` merged over it key by key.

        Raises OverlayError: ``not-changeable`` for anything below a ``rounds`` section, ``bad-settings`` for the rest
        (not JSON, unknown keys, wrong types, values that contradict).
        """
        return self._overlaid(cluster, overlay)

    def __getstate__(self) -> tuple[ClusterSettings, dict[str, ClusterSettings]]:
        return self._default, self._named

    def __setstate__(self, state: tuple[ClusterSettings, dict[str, ClusterSettings]]) -> None:
        self._default, self._named = state
        self._configured = {}
        self._forget()

    def _forget(self) -> None:
        self._overlaid = lru_cache(maxsize=OVERLAYS_CACHED_COUNT)(self._lay_over)

    def _lay_over(self, cluster: str, overlay: bytes) -> ClusterSettings:
        over, base = _read(overlay), self.base(cluster)
        tree = {"pulsar": dataclasses.asdict(base.pulsar), "kafka": dataclasses.asdict(base.kafka)}
        try:
            return _cluster_settings(read_tree(merge(tree, over), ClusterSection))
        except SettingsError as error:
            raise OverlayError("bad-settings", error.in_one_line) from error
        except UnknownZone as error:
            raise OverlayError("bad-settings", str(error)) from error


def _make(system: System, configured: Configured) -> ClusterSettings | None:
    """The settings that a controller has shown; None where they are not whole, or mean something else in this version."""
    if configured.settings is None:
        return None
    try:
        made = _cluster_settings(read_tree({system: configured.settings}, ClusterSection))
    except (SettingsError, UnknownZone):
        return None
    return made if made.in_force[system].digest == configured.settings_digest else None


def _cluster_settings(section: Settings | ClusterSection) -> ClusterSettings:
    return ClusterSettings(pulsar=section.pulsar, kafka=section.kafka, zones=resolve_zones(section.pulsar))


def _read(overlay: bytes) -> Tree:
    """The tables of an overlay.

    Settings of the rounds are refused: they define what a round is, so they stay the same for a whole checkpoint.
    """
    try:
        tree = msgspec.json.decode(overlay)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OverlayError("bad-settings", f"settings are not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise OverlayError("bad-settings", f"settings: expected an object, found {show(tree)}")
    for system, section in tree.items():
        rounds = section.get("rounds") if isinstance(section, dict) else None
        if isinstance(rounds, dict) and rounds:
            complaint = f"cannot be changed by control; change it in the file and start with {FRESH}"
            problem = Problem("", (system, "rounds", min(rounds)), complaint)
            raise OverlayError("not-changeable", str(problem))
    return tree
