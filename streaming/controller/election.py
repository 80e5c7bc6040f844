"""When a standby may try to lead, by the beats that it hears. Pure: no topic, and the clock is passed in.

Silence is counted only between two reads in a row that reached the end of the topic. Brokers that do not answer do not make the
leader silent: after a failed read the count begins anew, because the leader has to find its brokers again, too. Beats only decide
which standby tries to lead; the publisher decides which one leads.
"""

from streaming.contract import beat as beats
from streaming.contract.beat import Beat, Unreadable


class Election:
    """What one standby has heard. ``session_s`` is its own ``controller.session_s``."""

    def __init__(self, *, name: str, instance: str, session_s: float) -> None:
        self._name, self._instance, self._session_s = name, instance, session_s
        self._leader: Beat | None = None
        self._counted_s = 0.0
        """Time that counts: between reads in a row that reached the end."""
        self._leader_at_s = 0.0
        """When the leader was last heard, in counted time."""
        self._others: dict[str, float] = {}
        """Other standbys that could lead: when each was last heard, in counted time."""
        self._read_s: float | None = None
        """When the last read began, if it reached the end."""
        self._has_read = False

    @property
    def leader(self) -> Beat | None:
        """The newest beat of the leader with the highest epoch; None if there was none in the hour that the topic keeps."""
        return self._leader

    def receive(self, value: bytes | None) -> None:
        """Take a record of the topic. One that is no beat, or another controller's, is ignored."""
        try:
            beat = beats.decode(value or b"")
        except Unreadable:
            return
        if beat.name != self._name:
            return
        if beat.role == "leader":
            self._note_leader(beat)
        elif beat.instance != self._instance:
            self._note_standby(beat)

    def note_read(self, began_s: float) -> None:
        """Note that a read that began at ``began_s`` has reached the end, and that all its records were heard.

        A step longer than half a session counts as half a session: a standby that was frozen that long hears the others first.
        """
        if self._read_s is not None:
            self._counted_s += min(began_s - self._read_s, self._session_s / 2)
        self._read_s = began_s
        self._has_read = True

    def note_failure(self) -> None:
        """Note that a read did not reach the end."""
        self._read_s = None
        self._leader_at_s = self._counted_s

    def reason(self) -> str | None:
        """Why this standby may try to lead now; None where it may not."""
        if not self._has_read:
            return None
        leader = self._leader
        silent_s = self._counted_s - self._leader_at_s
        # The first in line may need a session until it is heard as the leader; the next one waits that long.
        session_s = max(self._session_s, 0.0 if leader is None else leader.session_s)
        patience_s = session_s * self._place()
        if leader is not None and leader.is_leaving and silent_s >= patience_s:
            return f"the leader {leader.instance} has said goodbye"
        if silent_s < session_s + patience_s:
            return None
        if leader is None:
            return f"no leader was heard for {silent_s:.1f} s"
        return f"the leader {leader.instance} was not heard for {silent_s:.1f} s"

    def _note_leader(self, beat: Beat) -> None:
        if self._leader is None or beat.epoch >= self._leader.epoch:
            self._leader = beat
            self._leader_at_s = self._counted_s
            self._others.pop(beat.instance, None)

    def _note_standby(self, beat: Beat) -> None:
        if beat.is_leaving or beat.problem:
            self._others.pop(beat.instance, None)
        else:
            self._others[beat.instance] = self._counted_s

    def _place(self) -> int:
        """How many standbys come before this one: those heard within a session whose names sort before its own."""
        since_s = self._counted_s - self._session_s
        return sum(1 for other, at_s in self._others.items() if other < self._instance and at_s > since_s)
