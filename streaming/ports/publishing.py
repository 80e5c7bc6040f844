"""The errors that every sink raises.

A sink makes a micro-batch's records visible exactly once, and refuses to work on when that promise cannot
be kept. The three errors say what the caller has to do: stop with an explanation (`CheckpointMismatch`),
stop because another controller has taken over (`Fenced`), or try again later (`PublishError`).
"""


class CheckpointMismatch(Exception):
    """Marker and checkpoint disagree: going on could lose or repeat actions. Do not retry."""


class Fenced(Exception):
    """A newer controller of the same name has taken over: this process must end. Do not retry."""


class PublishError(Exception):
    """The broker could not be reached or refused: nothing is known to be published. Retry with back-off."""


class NotAllowed(PublishError):
    """The broker refuses what a publisher must be allowed to do: waiting at a start does not help."""
