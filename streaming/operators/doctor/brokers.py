"""Addresses, permissions, topics and their partitions. Pure."""

from collections.abc import Iterator

from streaming.operators.doctor.facts import Facts, SideSeen
from streaming.operators.doctor.findings import Finding, Missed, good, not_checked, problem, warning
from streaming.settings import Settings
from streaming.transport.topics import TopicsSeen

_CREATE = "Run: trimtab topics create"


def addresses(facts: Facts) -> Iterator[Finding]:
    """Whether the brokers answer."""
    for side in facts.sides:
        seen = side.brokers
        if not isinstance(seen, Missed):
            said = "" if seen.version is None else f", version {seen.version}"
            yield good("addresses", f"{side.url} answers: {seen.text}{said}", about=side.name)
        else:
            section = "input" if side.name.startswith("input") else "output"
            remedy = (
                f"Start the brokers, or correct {section}.url: the connection's settings are in [{section}.pulsar]"
                if side.url.startswith("pulsar")
                else f"Start the brokers, or correct {section}.url: the connection's settings are in [{section}.security]"
            )
            yield problem("addresses", seen.why, remedy, about=side.name, is_unreachable=seen.is_unreachable)


def permissions(facts: Facts) -> Iterator[Finding]:
    """Whether the settings' user may do what ``trimtab run`` does."""
    for side, seen in _topics_of_sides(facts, "permissions"):
        if isinstance(seen, Finding):
            yield seen
            continue
        for denied in seen.denied:
            runs_without = denied.tolerable and not facts.settings.controller.standby
            say = warning if runs_without else problem
            yield say("permissions", denied.what, denied.remedy, about=side.name)
        if not seen.denied:
            yield good("permissions", "no permission is missing on the topics", about=side.name)
        if side.name != "input":
            yield from _find_unchecked_permissions(facts.settings, side)


def _find_unchecked_permissions(settings: Settings, side: SideSeen) -> Iterator[Finding]:
    """Permissions that brokers show only to a client that uses them."""
    if settings.output_is_pulsar:
        place = settings.input.pulsar if settings.output.url is None else settings.output.pulsar
        if place.token_file is not None:
            topic = place.full_name(settings.topics.actions)
            yield not_checked(
                "permissions",
                "only producing shows whether the token's role may produce",
                f"See: pulsar-admin topics permissions {topic}",
                about=side.name,
            )
        return
    security = settings.input.security if settings.output.url is None else settings.output.security
    if security.names_a_user or security.certificate_file is not None:
        name = settings.controller.name
        yield not_checked(
            "permissions",
            f"only a start shows whether Write is allowed on the transactional id {name}",
            f"See: kafka-acls.sh --bootstrap-server {settings.output_bootstrap} --list --transactional-id {name}",
            about=side.name,
        )


def topics(facts: Facts) -> Iterator[Finding]:
    """Whether the topics are as ``trimtab topics create`` makes them."""
    for side, seen in _topics_of_sides(facts, "topics"):
        if isinstance(seen, Finding):
            yield seen
        else:
            yield from _topics_of(side, seen, facts.settings)


def _topics_of(side: SideSeen, seen: TopicsSeen, settings: Settings) -> Iterator[Finding]:
    found = [problem("topics", "the topic is missing", _CREATE, about=name) for name in seen.missing]
    found += [
        warning("topics", f"the topic is missing: {_use_of(name, settings)}", _CREATE, about=name)
        for name in seen.missing_optional
    ]
    for each in seen.differences:
        say = warning if each.tolerable else problem
        text = f"{each.setting} is {each.found}, expected {each.expected}"
        found.append(say("topics", text, each.remedy, about=each.topic))
    found += [warning("topics", each.what, each.remedy, about=side.name) for each in seen.warnings]
    yield from found
    if not found:
        yield good("topics", f"all {seen.count} are as `trimtab topics create` makes them", about=side.name)


def _use_of(name: str, settings: Settings) -> str:
    if name.rpartition("/")[2] == settings.topics.beats:
        return "without it trimtab cannot show which controller runs"
    return "only `trimtab execute kafka` needs it"


def partitions(facts: Facts) -> Iterator[Finding]:
    """Whether each partition has a leader and enough replicas; Pulsar has neither."""
    for side, seen in _topics_of_sides(facts, "partitions"):
        if isinstance(seen, Finding):
            yield seen
            continue
        for each in seen.unwell:
            say = warning if each.tolerable else problem
            text = f"{each.setting}: {each.found}, expected {each.expected}"
            yield say("partitions", text, each.remedy, about=each.topic)
        if not seen.unwell and not side.url.startswith("pulsar"):
            yield good(
                "partitions", "each partition has a leader and all its replicas in sync", about=side.name
            )


def _topics_of_sides(facts: Facts, check: str) -> Iterator[tuple[SideSeen, TopicsSeen | Finding]]:
    """Each side with its topics, or with the reason why nothing is known about them."""
    for side in facts.sides:
        seen = side.topics
        if isinstance(seen, Missed):
            yield side, not_checked(check, seen.why, about=side.name)
        else:
            yield side, seen
