"""``trimtab doctor``: everything a person would look at first, and what to do about it.

``facts`` looks. Each check of the table ``CHECKS`` then judges what was found, purely: it says what is wrong, or that nothing
is. What a round says of its own cluster is not repeated here: ``trimtab status`` shows it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeVar, get_args

import click
import msgspec

from policies.wording import counted, digits
from state.events import Rejection
from state.layouts import FRESH
from state.outputs import RoundSummary
from streaming.cli.facts import FULL, LOCKED, REJECTED_COUNT, CheckpointSeen, Facts, Missed, gather_facts
from streaming.cli.options import example, settings_options
from streaming.cli.output import age_text, counts_text, format_option, render, table_lines, text_of
from streaming.cli.published import age_s, is_late
from streaming.cli.summaries import missed_results
from streaming.contract.decode import decode
from streaming.contract.envelope import read_envelope
from streaming.process.exits import OK, REFUSED, UNREACHABLE
from streaming.settings import Settings
from streaming.settings.identity import EVERY_CLUSTER, AcceptedClusters
from streaming.transport.checkpoint import place_of
from streaming.transport.errors import ADOPT, DATA_LOST, SKIP_LOST, CheckpointMismatch
from streaming.transport.publishing import Checkpoint, Marker, next_start
from streaming.transport.side import TopicRecord

Outcome = Literal["problem", "warning", "not checked", "ok"]
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""The worst first."""
_FAR_S = 2.0
"""Clocks that are kept by NTP agree within milliseconds; the rest is the time that a record takes to its broker."""
_BEHIND_S = 60.0
"""Events further behind may come from a queue or a recording."""
_GO_ON = f"go on with {SKIP_LOST}, or start over with {FRESH}"
_ADVICE = re.compile(r" \([^)]*--[^)]*\)|[:;.,][^:;.,(]*--(?:fresh|adopt|skip-lost).*", re.DOTALL)
Value = TypeVar("Value")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str = ""
    """Name of the check."""
    outcome: Outcome
    about: str = ""
    """Which side, topic, cluster or process; empty where there is only one."""
    finding: str
    """One sentence: what is wrong, why it was not checked, or what is well."""
    remedy: str | None = None
    """What to do; null where nothing is to be done."""
    is_unreachable: bool = False
    """Whether brokers do not answer, which may pass."""


def _find(
    outcome: Outcome, finding: str, remedy: str | None = None, about: str = "", *, silent: bool = False
) -> Finding:
    return Finding(outcome=outcome, finding=finding, remedy=remedy, about=about, is_unreachable=silent)


_ok, _not_checked = partial(_find, "ok"), partial(_find, "not checked")
_warning = partial(_find, "warning")
"""A person should look at it, but not at night."""
_problem = partial(_find, "problem")
"""Trimtab does not do its work, or would not start."""


def _known(found: Value | Missed) -> Value:
    """Raises ``Missed``, which ends the check."""
    if isinstance(found, Missed):
        raise found
    return found


def _addresses(facts: Facts) -> Iterator[Finding]:
    for name, url, seen, _ in facts.sides:
        if isinstance(seen, Missed):
            yield _problem(seen.why, about=name, silent=seen.is_unreachable)
        else:
            version = "" if seen.version is None else f", version {seen.version}"
            yield _ok(f"{url} answers: {seen.text}{version}", about=name)


def _permissions(facts: Facts) -> Iterator[Finding]:
    """Some permissions are shown only to a client that uses them: `produce` on Pulsar, Write on the transactional id on Kafka."""
    settings = facts.settings
    writes = settings.input if settings.output.url is None else settings.output
    user = writes.security.names_a_user or writes.security.certificate_file or writes.pulsar.token_file
    for name, _, _, seen in facts.sides:
        if isinstance(seen, Missed):
            yield _not_checked(seen.why, about=name)
            continue
        for each in seen.denied:
            say = _warning if each.tolerable and not settings.controller.standby else _problem
            yield say(each.what, each.remedy, about=name)
        if seen.missing:
            yield _not_checked(
                f"{counted(len(seen.missing), 'missing topic')} cannot show permissions", about=name
            )
        elif not seen.denied:
            yield _ok("no permission is missing on the topics", about=name)
        if user and name != "input":
            yield _not_checked("only a start shows whether it may publish", _SECURITY, about=name)


def _topics(facts: Facts) -> Iterator[Finding]:
    for name, _, _, seen in facts.sides:
        if isinstance(seen, Missed):
            yield _not_checked(seen.why, about=name)
            continue
        found = [_problem("the topic is missing", about=topic) for topic in seen.missing]
        for topic in seen.missing_optional:
            is_executors = topic.endswith(facts.settings.topics.executor_kafka)
            needed = "`execute kafka` needs" if is_executors else "`status` and standbys need"
            found.append(_warning(f"the topic is missing, which only {needed}", about=topic))
        for each in (*seen.differences, *seen.unwell):
            say = _warning if each.tolerable else _problem
            text = f"{each.setting} is {each.found}, expected {each.expected}"
            found.append(say(text, each.remedy, about=each.topic))
        found += [_warning(each.what, each.remedy, about=name) for each in seen.warnings]
        text = f"its {counted(seen.count, 'topic')} are as `trimtab topics create` makes them, and served"
        yield from found or [_ok(text, about=name)]


def _clocks(facts: Facts) -> Iterator[Finding]:
    processes = [] if isinstance(facts.processes, Missed) else facts.processes
    accepted = AcceptedClusters(facts.settings.controller.accepted_clusters)
    senders = {} if isinstance(facts.input, Missed) else ahead_by_sender(facts.input, accepted)
    brokers = [seen for _, _, seen, _ in facts.sides if not isinstance(seen, Missed)]
    # Pulsar reports its time; on Kafka, a beat that was appended in the future shows that this machine's clock is behind
    own = [-seen.ahead_s for seen in brokers if seen.ahead_s is not None]
    own = own or sorted(each.age_s for each in processes if each.age_s < 0)[:1]
    clocks = [("this machine", ahead_s) for ahead_s in own]
    clocks += [(each.beat.instance, each.ahead_s) for each in processes if each.runs]
    missed = dict.fromkeys(each.why for each in (facts.processes, facts.input) if isinstance(each, Missed))
    found = [_not_checked(why) for why in missed]
    if not (clocks or senders or missed):
        found.append(_not_checked("no clock can be compared: there is no recent beat or event"))
    found += [
        _warning(f"its clock is {_offset(ahead_s)} the brokers'", about=name)
        for name, ahead_s in clocks
        if abs(ahead_s) > _FAR_S
    ]
    rounds = facts.settings.pulsar.rounds, facts.settings.kafka.rounds
    most_s = min(each.max_ahead_s for each in rounds)
    for name, ahead_s in senders.items():
        text = f"its events are {_offset(ahead_s)} the brokers' clock"
        if ahead_s > most_s:
            found.append(_problem(f"{text}: refused as ahead-of-log from {digits(most_s)} s on", about=name))
        elif ahead_s > _FAR_S or ahead_s < -_BEHIND_S:
            found.append(_warning(text, about=name))
    yield from found or [_ok("the known clocks agree with the brokers'")]


def ahead_by_sender(
    records: Iterable[TopicRecord], accepted: AcceptedClusters = EVERY_CLUSTER
) -> dict[str, float]:
    """Seconds from a record's append to its event's time, the farthest from 0 of each ``source``; rejected records do not count."""
    found: dict[str, float] = {}
    for record in records:
        cluster, event, _ = decode(record.value, key=(record.key or b"").decode(errors="replace"))
        if isinstance(event, Rejection) or accepted.refusal(cluster, event):
            continue
        source = read_envelope(record.value or b"").source
        ahead_s = round((event.time_ms - record.timestamp) / 1000, 3)
        found[source] = max(found.get(source, ahead_s), ahead_s, key=abs)
    return dict(sorted(found.items()))


def _offset(ahead_s: float) -> str:
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'}"


def _checkpoint(facts: Facts) -> Iterator[Finding]:
    """By the rules of a start; the commits topic has to know the highest epoch, because consumers refuse every lower one."""
    marker, name = _known(facts.marker), facts.settings.controller.name
    newest = 0 if marker is None else marker.epoch
    epochs = {f"the beat of {each.beat.instance}": each.beat.epoch for each in facts.own_processes}
    for event, epoch in () if isinstance(facts.rounds, Missed) else facts.rounds:
        if event.source.rpartition("/")[2] == name:
            epochs[f"the newest round of {event.cluster}"] = epoch or 0
    if higher := [f"{what} has epoch {each}" for what, each in epochs.items() if each > newest]:
        known = f"{', '.join(higher)}, and the newest marker {newest or 'none'}"
        yield _problem(f"{known}: unless a controller has just started, its commits topic has lost records")
    seen = _known(facts.checkpoint)
    refusal, obstacle = _refusal(facts, seen, marker), _obstacle(facts, seen)
    if obstacle:
        remedy = _MAKE_ROOM if obstacle == FULL else _LET_WRITE
        yield _problem(f"{facts.settings.spark.checkpoint}: {obstacle}", remedy)
    if refusal is None:
        here = "a first start makes it"
        if seen.checkpoint is not None:
            here = f"it can be used, and is planned to batch {_number(seen.checkpoint.last_batch_id)}"
        published = "nothing" if marker is None else f"batch {_number(marker.batch_id)}"
        if not obstacle:
            yield _ok(f"{facts.settings.spark.checkpoint}: {here}; {published} is published")
        if isinstance(facts.lost, Missed):
            yield _not_checked(f"whether records are gone that it has not read: {facts.lost.why}")
    elif facts.user is not None and facts.user.runs and seen == CheckpointSeen():
        path, leader = facts.user.beat.checkpoint, facts.user.beat.instance
        what = f"the checkpoint {path} was deleted or replaced under {leader}, which leads with it"
        yield _problem(what, _BRING_BACK)
    elif why := _why_elsewhere(facts, seen):
        here = f"a start on this machine, {facts.host}, would be refused: {_without_options(refusal)}"
        yield _not_checked(f"{here}; but {why}", _LOOK_THERE)
    else:
        yield _problem(refusal)


def _obstacle(facts: Facts, seen: CheckpointSeen) -> str:
    """Why the controller cannot write here; empty where it can, runs elsewhere, or may be another user than this command's."""
    is_elsewhere = facts.own_processes and facts.user is None
    runs = facts.user is not None and facts.user.runs
    return "" if is_elsewhere or (runs and seen.obstacle == LOCKED) else seen.obstacle


def _refusal(facts: Facts, seen: CheckpointSeen, marker: Marker | None) -> str | None:
    """Why a start would be refused here; None where it would not."""
    location = place_of(facts.settings.spark.checkpoint)
    known = seen.checkpoint or Checkpoint(query_id=None, last_batch_id=None, location=location)
    name, now_s = facts.settings.controller.name, facts.now_ms / 1000
    try:
        next_start(marker, known, name=name, start_with="checkpoint", now_s=now_s)
    except CheckpointMismatch as error:
        return seen.refusal or str(error)
    if seen.refusal is None and not isinstance(facts.lost, Missed) and facts.lost:
        return f"{DATA_LOST} ({'; '.join(map(str, facts.lost))}): {_GO_ON}"
    return seen.refusal


def _number(number: int | None) -> str:
    return "none" if number is None else str(number)


def _why_elsewhere(facts: Facts, seen: CheckpointSeen) -> str:
    """Why the controller's checkpoint may be another one than what is seen from here; empty where it is this one."""
    own = facts.own_processes
    others = sorted({each.host for each in own} - {facts.host})
    leaders = [each for each in own if each.runs and each.beat.role == "leader"]
    if leaders:
        leader = min(leaders, key=lambda each: each.beat.instance)
        its = "it" if leader == facts.user else f"another one, {leader.beat.checkpoint} on {leader.host}"
        return f"{leader.beat.instance} leads with {its}"
    if facts.user is not None:
        return ""
    if not facts.settings.spark.checkpoint.startswith(("/", "file:")):
        return "the path is relative, and from another directory it leads elsewhere"
    if others:
        return f"the controller ran on {', '.join(others)}"
    return "nobody knows where it ran" if not own and seen == CheckpointSeen() else ""


def _without_options(text: str) -> str:
    """A refusal without its advice to start over: a start that does so while somebody leads would end it and forget its memory."""
    return _ADVICE.sub("", text)


def _leader(facts: Facts) -> Iterator[Finding]:
    name, own = facts.settings.controller.name, facts.own_processes
    running = [each.beat for each in own if each.runs]
    leaders, standing = ([each for each in running if each.role == role] for role in ("leader", "standby"))
    processes = (each for each in _known(facts.processes) if each.runs and each.beat.name != name)
    others = [each.beat for each in processes if each.beat.role == "leader"]
    for other in others:
        text = f'controller "{other.name}" leads on the same topics ({other.instance})'
        if leaders:
            yield _problem(f"{text}: both decide the same clusters", _APART)
        else:
            yield _problem(f'{text}, and none called "{name}" does', _OTHER_NAME)
    if not leaders and not others:
        last = min(own, key=lambda each: each.age_s, default=None)
        if last is None:
            yield _problem(f'no controller "{name}" runs: no beat of it in the last hour', _START)
        else:
            heard = f"its last beat was {age_text(last.age_s)}, from {last.beat.instance}"
            yield _problem(f'no controller "{name}" runs: {heard}')
    elif len(leaders) == 1:
        text = f"{leaders[0].instance} runs, epoch {leaders[0].epoch}, batch {_number(leaders[0].batch)}"
        fault = leaders[0].problem
        yield _problem(f"{text}, but {fault}", _FAILING) if fault else _ok(text)
    elif leaders:
        names = ", ".join(f"{each.instance} (epoch {each.epoch})" for each in leaders)
        text = f"more than one process beats as {name}: {names}. The highest epoch is obeyed, the others end soon"
        yield _warning(text, _APART)
    for each in standing:
        problem = _without_options(each.problem) if leaders else each.problem
        if problem:
            text = f"this standby could not lead: {problem}"
            yield _problem(text, "Mend it before the leader ends", about=each.instance)
        else:
            yield _ok("stands by", about=each.instance)
    if facts.settings.controller.standby and not standing:
        remedy = "Start a second one on another machine: trimtab run --standby"
        yield _warning("controller.standby is on, but no standby is running", remedy)


def _lag(facts: Facts) -> Iterator[Finding]:
    settings, topic = facts.settings, facts.settings.topics.input
    if isinstance(facts.input, Missed):
        yield _not_checked(facts.input.why, about=topic)
    elif not facts.input:
        yield _problem("no record came in the last day", "Start a collector: trimtab collect", about=topic)
    else:
        quiet_s = (facts.now_ms - max(record.timestamp for record in facts.input)) / 1000
        say = _problem if quiet_s > settings.pulsar.rounds.max_report_age_s else _ok
        yield say(f"the newest record came {age_text(max(0.0, quiet_s))}", about=topic)
    if isinstance(facts.rounds, Missed):
        yield _not_checked(facts.rounds.why, about=settings.topics.audit)
        return
    rounds = {event.cluster: event.data for event, _ in facts.rounds}
    for name in sorted({*settings.clusters} - rounds.keys()) or ([] if rounds else [settings.topics.audit]):
        yield _problem("no round in the last day", about=name)
    for name in sorted({*settings.targets} - {*settings.clusters} - rounds.keys()):
        yield _warning(
            "no round in the last hour", "Start its collector, if trimtab is to watch it", about=name
        )
    for name, data in rounds.items():
        say = _problem if is_late(data, facts.now_ms) else _ok
        ended = age_text(max(0.0, age_s(data, facts.now_ms)))
        yield say(f"its newest round ended {ended}", about=name)


def _rejected(facts: Facts) -> Iterator[Finding]:
    counts, topic = _known(facts.rejected), facts.settings.topics.dead_letter
    total = sum(counts.values())
    many = "at least " if total >= REJECTED_COUNT else ""
    text = f"{many}{counted(total, 'record')} went to {topic} in the last hour: {counts_text(counts)}"
    yield _warning(text) if counts else _ok(f"no record went to {topic} in the last hour")


def _executors(facts: Facts) -> Iterator[Finding]:
    for event, _ in _known(facts.rounds):
        missed = missed_results(event.data)
        for each in missed:
            say = _problem if each.kind == "not-carried-out" else _warning
            yield say(each.advice, about=event.cluster)
        if not missed:
            is_dry_run = event.data.mode == "dry-run"
            text = "in dry-run nothing is carried out" if is_dry_run else "no action misses its result"
            yield _ok(text, about=event.cluster)


def _balancers(facts: Facts) -> Iterator[Finding]:
    for event, _ in _known(facts.rounds):
        name, others, throttle = event.cluster, event.data.other_balancers, event.data.throttle
        if event.data.system == "kafka":
            rates = {} if throttle is None else throttle.others_rates_bytes_per_s
            text = f"another program has set throttles: {', '.join(rates)}"
            if throttle is not None and throttle.partitions_moving_count == 0:
                text += ", and nothing is copied: they stay, and hold back what moves next"
            yield _warning(text, about=name) if rates else _ok("nobody else has set a throttle", about=name)
            continue
        if others is None:
            yield _not_checked("no collector has reported whether Pulsar balances by itself", about=name)
            continue
        for key, brokers in (
            ("loadBalancerSheddingEnabled", others.shedding_brokers),
            ("loadBalancerAutoBundleSplitEnabled", others.splitting_brokers),
        ):
            if brokers:
                yield _at_work(event.data, f"Pulsar's own {key} is on at {', '.join(brokers)}", key)
            else:
                yield _ok(f"Pulsar's own {key} is off", about=name)
        if others.unknown_brokers:
            text = f"it is not known of {', '.join(others.unknown_brokers)}: they cannot be asked"
            yield _not_checked(text, about=name)


def _at_work(data: RoundSummary, text: str, key: str) -> Finding:
    """What it means that Pulsar balances by itself: two balancers only where trimtab acts, unless the settings want both."""
    command = f"pulsar-admin brokers update-dynamic-config --config {key} --value false"
    if data.mode == "dry-run":
        return _ok(f"{text}, as it should be in dry-run; before mode act: {command}", about=data.cluster)
    if data.settings_by_name().get("pulsar.guards.hold_with_other_balancer") is False:
        both = "pulsar.guards.hold_with_other_balancer = false lets both act, which a rehearsal wants, or a Pulsar that goes on splitting"
        return _warning(
            f"{text}: {both}",
            "See docs/use/pulsar.md, Rehearse the executor and Hand over",
            about=data.cluster,
        )
    return _problem(text, f"Run: {command}", about=data.cluster)


def _versions(facts: Facts) -> Iterator[Finding]:
    """Of Spark that of the leader counts, because what it writes is read by the next start."""
    beats = [each.beat for each in facts.own_processes if each.runs]
    found = [(each.instance, "trimtab", each.version) for each in beats]
    found += [(each.instance, "Spark", each.spark_version) for each in beats if each.role == "leader"]
    others = [(who, what, each) for who, what, each in found if each and each != facts.versions[what]]
    for who, what, each in others:
        yield _warning(f"it has {what} {each}, and this command {facts.versions[what]}", about=who)
    if not others:
        yield _ok(", ".join(f"{what} {each}" for what, each in facts.versions.items()))


class Check(NamedTuple):
    """What is asked, and what to do about a problem or warning that names nothing better."""

    name: str
    question: str
    remedy: str
    judge: Callable[[Facts], Iterator[Finding]]


_PAGES = "docs/"
_WHERE = f"Pages below {_PAGES} come with trimtab's source, not with its package."
_REACH = "Start the brokers, or correct the url and the connection's settings of [input] or [output]"
_SECURITY = "See docs/run/security.md"
_REFUSED = "See docs/run/recover.md, When the checkpoint is refused"
_BRING_BACK = (
    "The controller ends within a minute: remove what is there now, bring the same checkpoint back, and start it; where more "
    f"was published meanwhile, the start needs {ADOPT}"
)
_MAKE_ROOM = "Free space on it, or set spark.checkpoint; a controller waits meanwhile, and loses nothing"
_LET_WRITE = "Run this command as the controller's user, or correct the path and its permissions, or set spark.checkpoint"
_LOOK_THERE = "Run trimtab doctor where the controller runs, in its directory and with its settings"
_START = "Start it: trimtab run; or wait for a minute if it is starting"
_APART = (
    "Stop the one that is not supervised; or give it a controller.name, [topics] and a checkpoint of its own"
)
_OTHER_NAME = "If it is the one that is meant, set controller.name to its name; otherwise stop it"
_START_AGAIN = (
    "Start it: trimtab run. Its exit code and log say why it ended (docs/reference/commands.md, Exit codes)"
)
_FAILING = "Remove the cause that it names; nothing is lost. It goes on by itself, or has ended by then: look at this command once more"
_STALLED = "See the other checks, the collector's log, and docs/run/runbooks/not-deciding.md"
_LETTERS = "Run: trimtab rejected tail --from earliest --no-follow"
_NOBODY = "See docs/run/runbooks/not-carried-out.md"
CHECKS = (
    Check("addresses", "Do the brokers answer?", _REACH, _addresses),
    Check("permissions", "May the controller's user do what it has to do?", _SECURITY, _permissions),
    Check("topics", "Are they as they must be, and served?", "Run: trimtab topics create", _topics),
    Check("clocks", "Do all of them agree?", "Keep all clocks by NTP: timedatectl status", _clocks),
    Check("checkpoint", "Would a start go on with it, the marker and the epochs?", _REFUSED, _checkpoint),
    Check("leader", "Which process leads, and which stand by?", _START_AGAIN, _leader),
    Check("lag", "How old are the newest report and the newest rounds?", _STALLED, _lag),
    Check("rejected", "What could not be used in the last hour?", _LETTERS, _rejected),
    Check("executors", "Does somebody carry the actions out?", _NOBODY, _executors),
    Check(
        "balancers", "Does another program balance?", "Find out which (docs/use/throttling.md)", _balancers
    ),
    Check("versions", "Are they the same everywhere?", "Upgrade the older one", _versions),
)
"""In such an order that a fault in one check explains faults in the next ones."""


def judge(facts: Facts) -> list[Finding]:
    """Every finding, in the order of the checks; one that fails does not end the others."""
    found = []
    for check in CHECKS:
        said: list[Finding] = []
        try:
            said += check.judge(facts)
        except Missed as missed:
            said.append(_not_checked(missed.why))
        except Exception as error:  # noqa: BLE001  reported in its place; the other checks go on
            failure = f"{type(error).__name__}: {error}"
            said.append(_not_checked(f"an error in trimtab itself, please report it: {failure}"))
        for each in said:
            remedy = check.remedy if each.outcome in {"problem", "warning"} else None
            found.append(msgspec.structs.replace(each, check=check.name, remedy=each.remedy or remedy))
    return found


def exit_code_of(findings: Iterable[Finding]) -> int:
    """0 without a problem; 6 where brokers do not answer and nothing else is wrong; else 5."""
    problems = [each for each in findings if each.outcome == "problem"]
    if not problems:
        return OK
    return UNREACHABLE if all(each.is_unreachable for each in problems) else REFUSED


def report_text(findings: Sequence[Finding]) -> str:
    """A page for a person, the worst first; below each finding what to do."""
    head: list[str] = []
    rows: list[tuple[str, ...]] = []
    for outcome in _OUTCOMES:
        found = [each for each in findings if each.outcome == outcome]
        plural = "s" if len(found) != 1 and outcome in {"problem", "warning"} else ""
        head += [f"{len(found)} {outcome}{plural}"] if found else []
        for each in found:
            about = f"{each.about}: " if each.about else ""
            rows.append((outcome, each.check, f"{about}{each.finding}"))
            rows += [("", "", f"→ {each.remedy}")] if each.remedy else []
    has_page = any(_PAGES in (each.remedy or "") for each in findings)
    return text_of([", ".join(head), *table_lines(rows), *([_WHERE] if has_page else [])])


_QUESTIONS = "\n".join(["\b", "Checks:", *(f"  {each.name:12} {each.question}" for each in CHECKS)])


@click.command("doctor", epilog=f"{_QUESTIONS}\n\n{example('trimtab doctor --input kafka://broker:9092')}")
@settings_options
@format_option("JSON and YAML are a list with one object per finding.")
@click.pass_context
def doctor_command(context: click.Context, settings: Settings, form: str) -> None:
    """Look at everything that a person would look at first.

    Each finding says what is wrong and what to do. It only reads: it disturbs no controller and changes nothing, and
    ends within a minute. Give it the settings of the controller, on the controller's machine where that is possible.

    The exit code is 0 without a problem, 5 with one, and 6 where brokers do not answer and nothing else is wrong.
    """
    found = judge(gather_facts(settings))
    click.echo(report_text(found) if form == "table" else render(msgspec.to_builtins(found), form), nl=False)
    context.exit(exit_code_of(found))
