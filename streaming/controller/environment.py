"""What must not change under a running controller: which topics it reads, how all topics are set up, and its checkpoint.

Spark notices none of it: a query reads on in a topic that was made anew, and writes on into a directory that was deleted.
A look asks the brokers and the checkpoint's store. A problem seen once may come from a broker that is just starting; seen
several times in a row it is sure. Brokers that do not answer are an outage, which says nothing about their topics.
"""

import logging
import threading
from collections.abc import Callable, Mapping

from state.layouts import FRESH
from streaming.process.closeable import Closeable
from streaming.settings import Settings
from streaming.systems import input_ids, input_side, validate_all
from streaming.transport.checkpoint import describe_exchanged, place_of
from streaming.transport.errors import ADOPT, NoAnswer, StartError, TopicsWrong
from streaming.transport.side import Progress

_LOG = logging.getLogger(__name__)

_EVERY_S = 10.0
_AGAIN_S = 2.0
"""How soon it looks again when something was wrong."""
_SURE_COUNT = 4


class Changed(Exception):
    """A topic or the checkpoint is not what it was; the text says what to do."""


class Unanswered(Exception):
    """Brokers do not answer, so nothing is known."""


def find_problem(
    settings: Settings, ids: Mapping[str, str], is_checkpoint_there: Callable[[], bool]
) -> str | None:
    """What is wrong now; ``ids`` are those of the input at the start. Raises ``Unanswered``."""
    try:
        validate_all(settings)
        now = input_ids(settings)
    except TopicsWrong as error:
        return str(error)
    except (StartError, NoAnswer) as error:
        raise Unanswered(str(error)) from error
    problem = describe_exchanged(ids, now)
    if problem is None and not is_checkpoint_there():
        return (
            f"the checkpoint {place_of(settings.spark.checkpoint)} was deleted or replaced under the running controller: remove what is "
            f"there now and bring it back; where more was published meanwhile, the start needs {ADOPT}; or start over with {FRESH}"
        )
    return problem


def refuse_regrown(settings: Settings, read: Progress) -> None:
    """Raises ``Changed`` for an input whose log was truncated and has grown again, and ``NoAnswer``."""
    problem = input_side(settings).find_regrown(read)
    if problem is not None:
        raise Changed(problem)


class EnvironmentMonitor(Closeable):
    """Looks again and again, in a thread of its own: an answer may take as long as a connection attempt."""

    def __init__(
        self, find_problem: Callable[[], str | None], *, every_s: float = _EVERY_S, again_s: float = _AGAIN_S
    ) -> None:
        self._find_problem = find_problem
        self._every_s, self._again_s = every_s, again_s
        self._count = 0
        self._problem: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="environment", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raises ``Changed`` if something is wrong for sure."""
        if self._problem is not None:
            raise Changed(self._problem)

    def require_now(self) -> None:
        """Look now, as often as it takes to be sure. Raises ``Changed`` or ``Unanswered``."""
        for attempt in range(_SURE_COUNT):
            if attempt:
                self._closed.wait(self._again_s)
            problem = self._find_problem()
            if problem is None:
                return
        raise Changed(problem)

    def close(self) -> None:
        """Stop looking; a look in progress is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        pause_s = self._every_s
        while not self._closed.wait(pause_s):
            problem = self._find_problem_safely()
            self._count = 0 if problem is None else self._count + 1
            pause_s = self._every_s if problem is None else self._again_s
            if self._count == 1:
                _LOG.warning(
                    "%s; this changed while the controller runs, and is checked again",
                    str(problem).rstrip("."),
                )
            if self._count >= _SURE_COUNT:
                self._problem = problem
                return

    def _find_problem_safely(self) -> str | None:
        try:
            return self._find_problem()
        except Unanswered:
            return None  # the query and the publisher report it
        except Exception:  # noqa: BLE001  logged with its traceback; the query goes on without this look
            _LOG.exception("topics and checkpoint could not be checked")
            return None
