"""What is known of the topics of a bundle above a limit, and the one cut that is made where too little is known.

A split cannot be undone, so it is decided on what the topics carry. That is known where the topic statistics account for what the
bundle's owner reports of it. A count that a collector does not send is missing from the account; it is not taken for 0.

Where it is not known, a bundle may be cut once, and its parts are looked at: a part that kept most of the load is not cut again
before it is known which topics have it. Known to do badly: where several topics share most of the load, it stops with them together.
"""

from dataclasses import dataclass

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting import algorithms
from policies.splitting.cut import Cut, SplitQuestion, TopicLoads, cut_at
from policies.splitting.plan import (
    BY_BROKER_BYTES,
    BY_BYTES,
    BY_MESSAGES,
    BY_SESSIONS,
    BY_TOPICS,
    MEASURES,
    NO_TOPIC,
    UNITS,
    BlindCut,
    SplitSettings,
    SplitSnapshot,
    TopicTable,
)

KNOWN_RATIO = 0.8
"""Share of what a bundle's owner reports for which its topics must account. Both figures are of the same minute and differ by
their noise; where more is missing, topics or counts are missing, or one of the two is old."""
DOMINANT_RATIO = 0.9
"""Share of a bundle's load from which one topic counts as carrying it, or one child as keeping it: the cut would relieve it by less
than a tenth."""
DIVIDED_RATIO = 2 / 3
"""Most of its bundle's load that a part may have after a cut by guess to be cut so again: a load that is spread evenly leaves a half."""
NO_STATISTICS = "no statistics of its topics came in this round; without_topic_stats holds it"
_HALF = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A bundle in the measure of one trigger."""

    snapshot: SplitSnapshot
    row: int
    """Bundle row."""
    trigger: int
    topics: TopicLoads
    """The topics in its range that are known."""

    @property
    def load(self) -> float:
        """What its owner reports of it."""
        at = self.snapshot
        columns = {
            "topics": at.topic_counts,
            "sessions": at.session_counts,
            "messages": at.messages_per_s,
            "bytes": at.bytes_per_s,
        }
        return float(columns[MEASURES[self.trigger]][self.row])

    @property
    def accounted_ratio(self) -> float:
        """The part of it for which the topics account."""
        load = self.load
        return float(_measured(self.topics, self.trigger).sum()) / load if load > 0 else 1.0

    @property
    def is_known(self) -> bool:
        """Whether it is known what each topic has."""
        return bool(self.snapshot.has_topic_stats[self.row]) and self.accounted_ratio >= KNOWN_RATIO

    def by(self, trigger: int) -> "Evidence":
        """The same bundle in another measure."""
        return Evidence(self.snapshot, self.row, trigger, self.topics)

    @property
    def has_one_topic(self) -> bool:
        """Whether one topic carries the load, so that no cut can help."""
        load = _measured(self.topics, self.trigger)
        return self.trigger != BY_TOPICS and bool(load.max() >= DOMINANT_RATIO * load.sum())

    def kept_ratio(self, cut: Cut) -> float:
        """The heaviest child's share after a cut."""
        load = _measured(self.topics, self.trigger)
        edges = np.searchsorted(self.topics.positions, np.array(cut.boundaries, dtype=np.int64))
        return float(max(part.sum() for part in np.split(load, edges)) / load.sum())

    def why_no_guess(self, settings: SplitSettings, earlier: BlindCut | None) -> str:
        """Why it is not cut without knowing what its topics have; empty where it may be."""
        unit = UNITS[self.trigger]
        if earlier and earlier.measure == MEASURES[self.trigger] and self.load > DIVIDED_RATIO * earlier.load:
            return (
                f"{self.load / earlier.load:.0%} of the {unit} of the bundle that it was cut from are still here: it is not cut "
                f"again before statistics say which topics have them"
            )
        if self._can_guess_by_topics(settings) or _may_cut_range(settings):
            return ""
        if not self.snapshot.has_topic_stats[self.row]:
            return NO_STATISTICS
        return f"the statistics of its topics account for {self.accounted_ratio:.0%} of its {unit}; without_topic_stats holds it"

    def guess(self, settings: SplitSettings, question: SplitQuestion) -> tuple[str, Cut]:
        """The algorithm and the one cut: off the topic with most of the traffic, or in the middle of the topics or of the range."""
        if not self._can_guess_by_topics(settings):
            return algorithms.RANGE_EQUALLY_DIVIDE, algorithms.range_equally_divide(question)
        why = (
            "its producers and consumers are not known by topic: it is cut once, and its parts are looked at"
        )
        for trigger in (BY_MESSAGES, BY_BYTES):
            load = _measured(self.topics, trigger)
            if load.max() > _HALF * load.sum():
                at = int(load.argmax())
                near = self.topics.positions[max(0, at - 1) : at + 2]
                edges = (near[:-1] + near[1:] + 1) // 2
                return algorithms.SPECIFIED_POSITIONS_DIVIDE, cut_at(
                    question, edges.tolist(), f"{why}; {self.topics.names[at]} has most of the traffic"
                )
        half = algorithms.topic_count_equally_divide(question)
        return algorithms.TOPIC_COUNT_EQUALLY_DIVIDE, Cut(
            boundaries=half.boundaries, reason=f"{why}; {half.reason}"
        )

    def _can_guess_by_topics(self, settings: SplitSettings) -> bool:
        return (
            self.trigger == BY_SESSIONS
            and self.by(BY_TOPICS).is_known
            and settings.algorithm != algorithms.RANGE_EQUALLY_DIVIDE
        )


def _may_cut_range(settings: SplitSettings) -> bool:
    return settings.algorithm == algorithms.RANGE_EQUALLY_DIVIDE or settings.without_topic_stats == "range"


def _measured(topics: TopicLoads | TopicTable, trigger: int) -> Floats | Ints:
    """The column of a trigger's measure; each topic counts as one where there are too many topics."""
    if trigger == BY_TOPICS:
        return np.ones(len(topics.names))
    if trigger == BY_SESSIONS:
        return topics.sessions
    return topics.bytes_per_s if trigger in (BY_BYTES, BY_BROKER_BYTES) else topics.messages_per_s


def heaviest_topic(table: TopicTable, bundle: int, trigger: int) -> tuple[int, float]:
    """Row of the topic with most of the bundle's load, ties by name, and its share of it.

    The measure is the trigger's, and message rate where there are too many topics. A topic that is alone has all of it; NO_TOPIC
    and 0 where there are several and none is known to have any.
    """
    rows = table.rows_of(bundle)
    load = _measured(table, BY_MESSAGES if trigger == BY_TOPICS else trigger)[rows]
    total = float(load.sum())
    if total <= 0:
        return (rows.start, 1.0) if len(load) == 1 else (NO_TOPIC, 0.0)
    most = np.flatnonzero(load == load.max()) + rows.start
    row = min(most.tolist(), key=lambda at: table.names[at])
    return row, float(load[row - rows.start]) / total
