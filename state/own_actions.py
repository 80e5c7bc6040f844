"""What a policy may know of the cluster's own actions: which are on their way, and how the last ones ended."""

from dataclasses import dataclass

from policies.shedding.contract import JudgedAction, UnloadInFlight
from state.memory import Header
from state.settings import MS_PER_S


@dataclass(frozen=True, slots=True)
class OwnActions:
    """Asked for by few policies, so it is worked out only then."""

    header: Header
    end_ms: int
    """End of the round."""

    def in_flight(self) -> list[UnloadInFlight]:
        """Unloads that do not show in the reports yet; a dry-run's destinations are not remembered."""
        trials = self.header.trials
        return [
            UnloadInFlight(
                bundle, each.source, trials[each.action_id].destination if each.action_id in trials else None
            )
            for bundle, each in sorted(self.header.leaving.items())
        ]

    def judged(self) -> list[JudgedAction]:
        """The last actions of each kind that were judged, the oldest first."""
        return [
            JudgedAction(each.kind, each.outcome, (self.end_ms - each.judged_ms) / MS_PER_S)
            for each in self.header.verdicts
        ]
