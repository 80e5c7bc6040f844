"""Two controllers in the demo: one leads, the other stands by, and after a while the leader is killed in front of the user."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deploy.local.demo.child import Trimtab
from deploy.local.demo.story import Story

SESSION_S = 3.0
_KILL_AFTER_ROUNDS = 8
"""By then the leader has decided something."""


@dataclass(slots=True)
class Pair:
    """The leader is killed after some rounds; the story says so, and when the standby has closed its first round."""

    leader: Trimtab
    standby: Trimtab
    clock: Callable[[], float] = time.monotonic
    _killed_s: float | None = field(init=False, default=None)
    _rounds_before: int = field(init=False, default=0)
    _has_taken_over: bool = field(init=False, default=False)

    @property
    def is_over(self) -> bool:
        """Whether the standby leads."""
        return self._has_taken_over

    def check(self) -> None:
        """Raise ChildError if a controller has ended that this object did not kill."""
        self.standby.check()
        if self._killed_s is None:
            self.leader.check()

    def follow_story(self, story: Story) -> None:
        """Kill the leader when it is time, and add the kill and the take-over to the story."""
        if self._killed_s is None:
            if story.rounds_count >= _KILL_AFTER_ROUNDS and story.decided_count > 0:
                self._kill(story)
        elif not self._has_taken_over and story.rounds_count > self._rounds_before:
            self._has_taken_over = True
            seconds = self.clock() - self._killed_s
            story.metrics_url = self.standby.metrics_url
            story.happenings.append(f"the standby leads: its first round came {seconds:.1f} s after the kill")

    def _kill(self, story: Story) -> None:
        self.leader.kill()
        self._killed_s, self._rounds_before = self.clock(), story.rounds_count
        story.happenings.append(
            "killed the leader (kill -9): the standby takes over when it hears nothing from the leader for "
            f"{SESSION_S:g} s"
        )
