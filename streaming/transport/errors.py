"""The errors of both systems' clients as programs see them, and what messages recommend.

Who publishes makes a micro-batch's records visible exactly once, and refuses to work on when that promise cannot be kept.
Three errors say what the caller has to do: stop with an explanation (``CheckpointMismatch``), stop because another controller
has taken over (``Fenced``), or try again later (``PublishError``).
"""

from typing import Literal

StartWith = Literal["checkpoint", "fresh", "adopt"]
"""What a start begins with: the checkpoint, if the marker agrees; nothing, and the marker is forgotten (``--fresh``); or
the checkpoint as it is (``--adopt``)."""
ADOPT = (
    "--adopt, which forgets what was published after the checkpoint: it may be decided and published again, and consumers may "
    "act twice"
)
SKIP_LOST = "--skip-lost, which decides without the lost records for good"
"""Both for messages that recommend the option: they say what is lost by it, like ``state.layouts.FRESH``."""
DATA_LOST = "the input has lost records that the checkpoint has not read yet"
"""What a start ends with and ``trimtab doctor`` finds."""


class CheckpointError(Exception):
    """The checkpoint cannot be used; the text says why and what to do."""


class CheckpointMismatch(Exception):
    """Marker and checkpoint disagree: going on could lose or repeat actions. Do not retry."""


class Fenced(Exception):
    """A newer controller of the same name has taken over: this process must end. Do not retry."""


class PublishError(Exception):
    """The broker could not be reached or refused: nothing is known to be published. Retry with back-off."""


class NotAllowed(PublishError):
    """The broker refuses what a publisher must be allowed to do: waiting at a start does not help."""


class Taken(PublishError):
    """Another executor has taken the memory since; nothing was written."""


class NoTopic(Exception):
    """The topic does not exist."""


class NoAnswer(Exception):
    """Brokers did not answer a question about a log, or refused it; the error of their client is its cause.

    ``is_transient`` says whether a later try may succeed: the brokers did not answer, rather than refuse.
    """

    def __init__(self, text: str, *, is_transient: bool) -> None:
        super().__init__(text)
        self.is_transient = is_transient


class StartError(Exception):
    """The application cannot start; the text names everything found wrong, and the remedy of each."""


class Unreachable(StartError):
    """The brokers do not answer; they may answer later."""


class TopicsWrong(StartError):
    """The brokers answered, and topics are missing or not as they must be."""
