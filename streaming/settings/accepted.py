"""Which clusters a controller accepts: names, or patterns with ``*`` and ``?``.

Every accepted name gets memory of its own and metrics of its own, as long as reports with it arrive. A record with another
name is refused before anything is remembered of it.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from state.events import Control, Event, Rejection

PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,100}")
"""What a name or a pattern can be."""


class AcceptedClusters:
    """The check of every event's cluster; picklable."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._accepts_every = "*" in self._patterns

    def refusal(self, cluster: str, event: Event) -> Rejection | None:
        """Why an event is refused. One that forgets a cluster is accepted: the memory of a refused name could not be deleted otherwise."""
        if self._accepts_every or (isinstance(event, Control) and event.forget):
            return None
        if any(fnmatchcase(cluster, pattern) for pattern in self._patterns):
            return None
        return Rejection(
            reason="unknown-cluster",
            detail=f"cluster {cluster} matches no entry of controller.accepted_clusters "
            f"({', '.join(self._patterns)[:200]}): add it there, or correct the name at the sender",
        )


EVERY_CLUSTER = AcceptedClusters(("*",))
