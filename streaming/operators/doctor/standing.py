"""The controller: its checkpoint, marker and epoch, its processes, and their versions. Pure."""

import re
from collections.abc import Iterator

from state.layouts import FRESH
from streaming.operators.doctor.facts import CheckpointSeen, Facts, Process
from streaming.operators.doctor.findings import Finding, Missed, good, not_checked, problem, warning
from streaming.transport.errors import CheckpointMismatch
from streaming.transport.publishing import Checkpoint, Marker, next_start

_ADVICE = re.compile(r"[:;.,][^:;.,]*--(?:fresh|adopt|skip-lost).*", re.DOTALL)
_REFUSED = "See docs/operations.md, When the checkpoint is refused"


def checkpoint(facts: Facts) -> Iterator[Finding]:
    """Whether a start on this machine would use the checkpoint."""
    seen = facts.checkpoint
    if isinstance(seen, Missed):
        yield not_checked("checkpoint", seen.why)
    elif seen.refusal is not None and (why := _why_elsewhere(facts)):
        yield not_checked("checkpoint", f"{_without_options(seen.refusal)}; but {why}", _look_there(facts))
    elif seen.refusal is not None:
        yield problem("checkpoint", seen.refusal, _REFUSED)
    elif seen.checkpoint is None:
        yield from _no_checkpoint(facts, seen)
    else:
        wrote = "" if seen.card is None else f", written by trimtab {seen.card.trimtab_version or 'unknown'}"
        yield good(
            "checkpoint",
            f"{seen.location} can be used: planned to batch {_batch(seen.checkpoint.last_batch_id)}, committed to "
            f"{_batch(seen.committed_batch)}{wrote}",
        )


def _no_checkpoint(facts: Facts, seen: CheckpointSeen) -> Iterator[Finding]:
    known = facts.marker
    if isinstance(known, Marker) and known.query_id is not None:
        here = f"there is none at {seen.location} on this machine, {facts.host}"
        why = _why_elsewhere(facts) or ("" if _own_processes_of(facts) else "nobody knows where it ran")
        if why:
            yield not_checked("checkpoint", f"{here}; but {why}", _look_there(facts))
        else:
            yield problem(
                "checkpoint",
                f"{here}, and the controller ran on it",
                f"Bring it back as it was, or start over with {FRESH}. {_REFUSED}",
            )
    else:
        yield good("checkpoint", f"there is none at {seen.location}, and a first start makes it")


def _why_elsewhere(facts: Facts) -> str:
    """Why the controller's checkpoint may be another one than what is seen from here; empty where it is this one."""
    own = _own_processes_of(facts)
    others = sorted({each.host for each in own} - {facts.host})
    leaders = sorted(each.instance for each in own if each.runs and each.role != "standby")
    if leaders:
        return f"{leaders[0]} leads, so the checkpoint that it uses is well"
    if not facts.settings.spark.checkpoint.startswith(("/", "file:")):
        return "the path is relative, and from another directory it leads elsewhere"
    return f"the controller ran on {', '.join(others)}" if others else ""


def _look_there(facts: Facts) -> str:
    hosts = (
        ", ".join(sorted({each.host for each in _own_processes_of(facts)})) or "the machine of the controller"
    )
    return f"Run trimtab doctor on {hosts}, in the directory and with the settings of the controller"


def _without_options(text: str) -> str:
    """A refusal without its advice to start over: a start that does so while somebody leads would end it and forget its memory."""
    return _ADVICE.sub("", text)


def marker(facts: Facts) -> Iterator[Finding]:
    """Whether what was published and the checkpoint agree, by the rules of a start."""
    found, seen = facts.marker, facts.checkpoint
    if isinstance(found, Missed):
        yield not_checked("marker", found.why)
        return
    text = _marker_text(found)
    if isinstance(seen, Missed) or seen.refusal is not None:
        yield not_checked("marker", f"{text}; the checkpoint it should agree with was not read")
        return
    known = seen.checkpoint or Checkpoint(query_id=None, last_batch_id=None)
    try:
        next_start(
            found,
            known,
            name=facts.settings.controller.name,
            start_with="checkpoint",
            now_s=facts.now_ms / 1000,
        )
    except CheckpointMismatch as error:
        if why := _why_elsewhere(facts):
            here = f"{text}; a start from here would be refused: {_without_options(str(error))}; but {why}"
            yield not_checked("marker", here, _look_there(facts))
        else:
            yield problem("marker", str(error), _REFUSED)
    else:
        yield good("marker", f"{text}, and the checkpoint agrees")


def _marker_text(found: Marker | None) -> str:
    if found is None:
        return "nothing was published yet"
    if found.batch_id is None:
        return f"no batch was published since the start of epoch {found.epoch}"
    return f"batch {found.batch_id} is published"


def epoch(facts: Facts) -> Iterator[Finding]:
    """Whether the commits topic knows the highest epoch there was: consumers refuse every lower one."""
    if isinstance(facts.marker, Missed):
        yield not_checked("epoch", facts.marker.why)
        return
    stands = 0 if facts.marker is None else facts.marker.epoch
    higher = {f"the beat of {each.instance}": each.epoch for each in _own_processes_of(facts)}
    higher |= {f"the newest round of {cluster}": each for cluster, each in _of_rounds(facts)}
    problems = [f"{what} has epoch {each}" for what, each in higher.items() if each > stands]
    if problems:
        yield problem(
            "epoch",
            f"{', '.join(problems)}, and the newest marker {stands or 'none'}: the commits topic has lost records",
            f"Run doctor again: a controller may just have started. If it stays so, find out who emptied or replaced "
            f"{facts.settings.topics.commits}. {_REFUSED}",
        )
    else:
        yield good("epoch", f"{stands} is the highest" if stands else "there is none yet")


def _of_rounds(facts: Facts) -> Iterator[tuple[str, int]]:
    name = facts.settings.controller.name
    for observed in () if isinstance(facts.clusters, Missed) else facts.clusters:
        if observed.epoch is not None and observed.event.source.rpartition("/")[2] == name:
            yield observed.data.cluster, observed.epoch


def leader(facts: Facts) -> Iterator[Finding]:
    """Which processes run under this controller's name, and which others there are."""
    if isinstance(facts.processes, Missed):
        yield not_checked("leader", facts.processes.why)
        return
    name = facts.settings.controller.name
    leaders = [each for each in _own_processes_of(facts) if each.runs and each.role != "standby"]
    if not leaders:
        yield problem(
            "leader",
            f"no controller {name} runs: {_describe_last_beat(facts)}",
            "Start it: trimtab run. Its exit code and the last lines of its log say why it ended (docs/operations.md, Exit "
            "codes)",
        )
    elif len(leaders) > 1:
        names = ", ".join(f"{each.instance} (epoch {each.epoch})" for each in leaders)
        yield warning(
            "leader",
            f"more than one process beats as {name}: {names}. The highest epoch is obeyed, the others end at their next batch",
            "Run doctor again in half a minute; stop the one that is not supervised, or give it a controller.name of its own",
        )
    else:
        (only,) = leaders
        yield good("leader", f"{only.instance} runs, epoch {only.epoch}, batch {_batch(only.batch)}")
    yield from _standbys(facts)
    others = sorted({each.controller for each in facts.processes if each.runs and each.controller != name})
    if others:
        yield good("leader", f"controllers of other names run, too: {', '.join(others)}")


def _standbys(facts: Facts) -> Iterator[Finding]:
    running = [each for each in _own_processes_of(facts) if each.runs]
    standing = [each for each in running if each.role == "standby"]
    for each in standing:
        if each.problem:
            yield problem(
                "leader",
                f"this standby could not lead: "
                f"{each.problem if standing == running else _without_options(each.problem)}",
                "Mend it before the leader ends",
                about=each.instance,
            )
        else:
            yield good("leader", "stands by", about=each.instance)
    if facts.settings.controller.standby and not standing:
        yield warning(
            "leader",
            "controller.standby is on, but no standby is running",
            "Start a second one on another machine: trimtab run --standby",
        )


def _describe_last_beat(facts: Facts) -> str:
    silent = sorted(_own_processes_of(facts), key=lambda each: each.age_s)
    if not silent:
        return "no beat of it in the last hour"
    return f"its last beat was {silent[0].age_s / 60:.1f} min ago, from {silent[0].instance}"


def versions(facts: Facts) -> Iterator[Finding]:
    """Whether all processes and the checkpoint have the same version of trimtab."""
    found = {each.instance: each.version for each in _own_processes_of(facts) if each.runs}
    seen = facts.checkpoint
    card = None if isinstance(seen, Missed) else seen.card
    if card is not None and card.trimtab_version:
        found[f"the checkpoint {facts.settings.spark.checkpoint}"] = card.trimtab_version
    others = {who: each for who, each in found.items() if each != facts.version}
    for who, each in others.items():
        yield warning(
            "versions",
            f"it has trimtab {each}, this command has {facts.version}",
            "Run doctor with the same version, or upgrade the older one",
            about=who,
        )
    if card is not None and card.spark_version and card.spark_version != facts.spark_version:
        yield warning(
            "versions",
            f"it was written by Spark {card.spark_version}, and {facts.spark_version} is installed here",
            f"Run: pip install pyspark=={card.spark_version}, unless the upgrade is meant",
            about=f"the checkpoint {facts.settings.spark.checkpoint}",
        )
    if not others:
        same = ", the same as the running processes and the checkpoint" if found else ""
        yield good("versions", f"trimtab {facts.version}, Spark {facts.spark_version}{same}")


def _own_processes_of(facts: Facts) -> list[Process]:
    """Processes under this controller's name."""
    if isinstance(facts.processes, Missed):
        return []
    return [each for each in facts.processes if each.controller == facts.settings.controller.name]


def _batch(number: int | None) -> str:
    return "none" if number is None else str(number)
