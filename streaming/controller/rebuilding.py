"""``trimtab run --rebuild``: makes the memory of all clusters from the input and from what was published, without a checkpoint.

The control topic from its beginning and the input from ``controller.rebuild_s`` before the marker are decided again, as ``trimtab
replay`` does it, exactly to where the marker's batch had read the input. Each round is remembered as it was published
(``state.engine.rounds``), so cooldowns, budgets, actions in flight, throttles and proposals are the real ones. What counts as published follows the rule for consumers: on each
partition, records with a lower epoch than an earlier record of the same source do not count.

Limits: what lasts longer than ``rebuild_s`` and was not published is forgotten, such as a hold because actions failed before that.
"""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from state.engine.layouts import FRESH
from state.engine.published import Published
from state.engine.store import DictStore
from state.outputs import Output, moment_ms, rfc3339
from state.outputs.types import ROUND_TYPE, SPLIT_TYPE, THROTTLE_TYPE, UNLOAD_TYPE
from streaming.contract.encode import source_of
from streaming.contract.envelope import EPOCH_HEADER, read_envelope
from streaming.controller.cut_batch import CLOCKS_APART_MS, CutBatch, find_first_after
from streaming.controller.recorder import Recorder
from streaming.controller.replay import Controllers
from streaming.controller.surroundings import refuse_regrown
from streaming.ports.actions import Epochs
from streaming.ports.marker import Marker
from streaming.ports.places import Progress
from streaming.ports.reading import Begin, NoAnswer, TopicRecord
from streaming.ports.starts import SKIP_LOST
from streaming.ports.topics import StartError, Unreachable
from streaming.process.exits import Refused
from streaming.process.waiting import StoppedWaiting
from streaming.pulsar.link import output_on_pulsar
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.accepted import AcceptedClusters
from streaming.settings.identity import identity_of
from streaming.settings.memory_span import memory_span_s
from streaming.spark.rebuilt import ClusterMemory, Rebuilt
from streaming.systems import skipping
from streaming.systems.keeping import input_kept_s, output_kept_s
from streaming.systems.passing import passes
from streaming.systems.reading import input_topic, output_reader

_LOG = logging.getLogger(__name__)

_LOOK_S = 2.0
"""How often it reports how far it is, and asks whether to go on."""
_ACTIONS = frozenset({UNLOAD_TYPE, SPLIT_TYPE, THROTTLE_TYPE})


class _Triggered(msgspec.Struct, frozen=True):
    trigger: str


_TRIGGERS = msgspec.json.Decoder(_Triggered)


class _Closed(NamedTuple):
    """A round that the events of the past closed."""

    number: int
    end_ms: int


def _span_s(settings: Settings) -> float:
    """``controller.rebuild_s``, or for 0 the least that the settings need. Raises ``Refused`` where it is too short."""
    least_s, given_s = memory_span_s(settings), settings.controller.rebuild_s
    if given_s and given_s < least_s:
        raise Refused(
            f"controller.rebuild_s is {given_s:g} s, but the longest cooldown, history and warm-up of the settings reach "
            f"{least_s:g} s back: set it to {least_s:g} or more, or to 0, which stands for the least possible value"
        )
    return given_s or least_s


def require_possible(settings: Settings, marker: Marker | None) -> None:
    """Refuse a rebuild that would need more of the past than the topics keep, or from an input that has changed.

    Raises ``Refused``, ``Changed``, ``Unreachable``, ``NoAnswer`` or ``PublishError``.
    """
    _require_kept(settings)
    _require_readable(settings)
    if marker is None or marker.read_until is None:
        return
    refuse_regrown(settings, marker.read_until)
    lost = skipping.find_lost(settings, marker.read_until.places)
    if lost:
        named = ", ".join(
            f"{each.topic} {each.partition}: read up to {each.read_until}, records exist from {each.goes_on_from}"
            for each in lost
        )
        raise Refused(
            f"the input has lost records that come after the marker ({named}): start over with {FRESH}, "
            f"or from a checkpoint with {SKIP_LOST}"
        )


def _require_readable(settings: Settings) -> None:
    """Read from the topics: only a fetch shows that we may write a topic but not read it."""
    topics = settings.topics
    read = [topics.actions, topics.actions_dry_run, topics.audit]
    if output_on_pulsar(settings) is not None:  # a batch may have been cut there
        read.append(topics.dead_letter)
    for topic in read:
        try:
            with output_reader(settings, topic, begin="latest") as reader:
                deque(reader.read_to_end(), maxlen=0)
        except Refused as error:
            _raise_passing(error)
            raise


def _raise_passing(error: Refused) -> None:
    """Raise ``NoAnswer`` if the brokers did not answer, which is no refusal."""
    if passes(error.__cause__):
        raise NoAnswer(error.message, passes=True) from error


def _require_kept(settings: Settings) -> None:
    span_s, topics = _span_s(settings), settings.topics
    try:
        kept_s = input_kept_s(settings, [topics.input])
        kept_s |= output_kept_s(settings, [topics.actions, topics.actions_dry_run, topics.audit])
    except Unreachable:
        raise
    except StartError as error:
        raise Refused(str(error)) from error
    for topic, each_s in kept_s.items():
        if each_s < span_s:
            raise Refused(
                f"a rebuild reads {span_s:g} s back (controller.rebuild_s), but the topic {topic} keeps records for only "
                f"{each_s:g} s: raise its retention, or share the checkpoint and start without --rebuild"
            )


@dataclass(slots=True, kw_only=True)
class Rebuilding:
    """One rebuild. ``go_on`` takes a text about how far it is, returns whether to go on, and raises what ends it."""

    settings: Settings
    go_on: Callable[[str], bool]
    _looked_s: float = 0.0

    def run(
        self, read_until: Progress, *, read_from: Progress | None = None, is_whole: bool
    ) -> tuple[Rebuilt, list[tuple[str, bytes]]]:
        """The memory, and keys and values of the dead letters that the last batch should have published and has not.

        ``is_whole`` says whether all of that batch, which read the input from ``read_from`` to ``read_until``, was published. Raises
        ``Refused``, ``NoAnswer``, ``StoppedWaiting`` and what ``go_on`` raises.
        """
        try:
            cut = None if is_whole else CutBatch(self.settings, read_from)
            rebuilt = self._run(read_until, cut)
            return rebuilt, [] if cut is None else cut.unpublished_letters()
        except Refused as error:
            _raise_passing(error)
            raise

    def _run(self, read_until: Progress, cut: CutBatch | None) -> Rebuilt:
        settings = self.settings
        since_ms = self._read_until_ms(read_until) - round(1000 * _span_s(settings))
        published = self._find_published(since_ms)
        controllers = Controllers(
            identity=identity_of(settings),
            settings=ClusterSettingsSource(settings),
            max_record_bytes=settings.controller.max_record_bytes,
            accepted=AcceptedClusters(settings.controller.accepted_clusters),
            published=published,
        )
        closed: dict[str, list[_Closed]] = defaultdict(list)
        count = 0
        with ExitStack() as stack:
            recorder = Recorder(stack, settings, begin=since_ms, until=read_until)
            for count, recorded in enumerate(recorder.records(is_stopped=lambda: False), start=1):
                outputs, refused = controllers.intake.take(
                    recorded.to_record(settings.controller.max_record_bytes)
                )
                if cut is not None and refused is not None:
                    cut.take(refused)
                for output in outputs:
                    if output.kind == "round":
                        closed[output.cluster].append(_Closed(output.round, output.time_ms))
                self._report_progress(f"rebuilding the memory: {count} records since {rfc3339(since_ms)}")
        missing = {} if cut is None else _without_summary(closed, self._find_summarized(since_ms))
        for cluster in {**published, **controllers.by_cluster}:
            controller = controllers.of(cluster)
            controller.end_rebuild(since_ms, missing.get(cluster, ()))
            controller.commit()
        memories = list(_memories(controllers.stores))
        _LOG.info(
            "rebuilt the memory of %d clusters from %d records since %s, and from what was published",
            len(memories),
            count,
            rfc3339(since_ms),
        )
        for cluster, numbers in sorted(missing.items()):
            _LOG.warning("cluster %s: no summary was published for rounds %s", cluster, numbers)
        return Rebuilt(memories=memories, read_until=read_until)

    def _read_until_ms(self, read_until: Progress) -> int:
        """The time up to which everything was read: unread records may be older than the batch, if the batch was behind."""
        name = input_topic(self.settings, self.settings.topics.input)
        unread = [find_first_after(self.settings, each) for each in read_until.places if each.topic == name]
        return min([read_until.planned_ms, *(each.timestamp for each in unread if each is not None)])

    def _find_published(self, since_ms: int) -> dict[str, Published]:
        """By cluster, actions and proposals published since then, and throttles from before that are still in force."""
        found: dict[str, list[Output]] = defaultdict(list)
        topics = self.settings.topics
        for topic in (topics.actions, topics.actions_dry_run):
            throttles: dict[str, list[Output]] = defaultdict(list)
            for appended_ms, output in self._events(topic, _ACTIONS):
                if appended_ms >= since_ms - CLOCKS_APART_MS:
                    found[output.cluster].append(output)
                elif output.type == THROTTLE_TYPE:
                    before = throttles[output.cluster]
                    before[:] = [] if _is_last(output) else [*before, output]
            for cluster, before in throttles.items():
                found[cluster][:0] = before
        return {cluster: Published(actions) for cluster, actions in found.items()}

    def _find_summarized(self, since_ms: int) -> dict[str, int]:
        """By cluster, end of the newest round whose summary was published since then."""
        found: dict[str, int] = {}
        for _, output in self._events(self.settings.topics.audit, {ROUND_TYPE}, begin=since_ms):
            found[output.cluster] = max(output.time_ms, found.get(output.cluster, output.time_ms))
        return found

    def _events(
        self, topic: str, types: Collection[str], *, begin: Begin = "earliest"
    ) -> Iterator[tuple[int, Output]]:
        """Events of this controller and of these types on a topic, as far as they count, with their append times."""
        source, epochs = source_of(self.settings.controller.name), Epochs()
        with output_reader(self.settings, topic, begin=begin) as reader:
            for record in reader.read_to_end():
                output = _event(record, source, epochs, types)
                if output is not None:
                    yield record.timestamp, output
                self._report_progress(f"rebuilding the memory: reading {topic}")

    def _report_progress(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s < self._looked_s + _LOOK_S:
            return
        self._looked_s = now_s
        if not self.go_on(text):
            raise StoppedWaiting


def _is_last(throttle: Output) -> bool:
    """Whether it removes all throttles that earlier ones have set."""
    return _TRIGGERS.decode(throttle.data).trigger == "finished"


def _event(record: TopicRecord, source: str, epochs: Epochs, types: Collection[str]) -> Output | None:
    """The output in a record; None if it is not one of this controller and these types, or came after a record of a successor."""
    header = dict(record.headers).get(EPOCH_HEADER)
    if record.value is None or header is None:
        return None
    try:
        envelope, epoch = read_envelope(record.value), int(header)
    except (msgspec.MsgspecError, ValueError):
        return None
    is_outdated = epochs.note(record.partition, envelope.source, epoch) > epoch
    if is_outdated or envelope.source != source or envelope.type not in types:
        return None
    is_round = envelope.type == ROUND_TYPE
    return Output(
        kind="round" if is_round else "action",
        type=envelope.type,
        subject=envelope.subject,
        cluster=envelope.cluster,
        round=0,
        place=0,
        time_ms=moment_ms(envelope.time),
        id=envelope.id,
        data=bytes(envelope.data),
        dry_run=False,
    )


def _without_summary(
    closed: Mapping[str, list[_Closed]], summarized_ms: Mapping[str, int]
) -> dict[str, list[int]]:
    """By cluster, the rounds after the newest one whose summary was published."""
    found = {
        cluster: [each.number for each in rounds if each.end_ms > summarized_ms.get(cluster, 0)]
        for cluster, rounds in closed.items()
    }
    return {cluster: numbers for cluster, numbers in found.items() if numbers}


def _memories(stores: Mapping[str, DictStore]) -> Iterator[ClusterMemory]:
    for cluster, store in sorted(stores.items()):
        header = store.header()
        if header is not None:
            yield ClusterMemory(
                cluster=cluster, header=header, fleet=store.fleet(), waiting=list(store.all_waiting())
            )
