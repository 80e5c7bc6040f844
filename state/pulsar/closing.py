"""What a round of a Pulsar cluster decided."""

from dataclasses import dataclass, field
from typing import Literal

from state.outputs import Unload
from state.pulsar.actions import Admitted
from state.pulsar.approvals import Answers
from state.pulsar.drain import Drained
from state.pulsar.shedding import Shed
from state.pulsar.splits import Splits


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What a round decided; ``shed`` is None where its policies did not run, ``splits`` also where they are switched off."""

    outcome: Literal["decided", "warm-up", "no-quorum"]
    reason: str
    shed: Shed | None = None
    admitted: Admitted = field(default_factory=Admitted)
    splits: Splits | None = None
    drained: Drained | None = None
    answers: Answers = field(default_factory=Answers)

    @property
    def unloads(self) -> list[Unload]:
        """Unloads that were approved, those that empty drained brokers, then those of the policy."""
        drained = self.drained.unloads if self.drained else ()
        return [*self.answers.unloads, *drained, *self.admitted.unloads]
