"""The executor on a real cluster: what it says happened is what the brokers say, and nothing is done twice."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle, BundleRange
from streaming.pulsar.admin import PulsarAdmin
from tests.support.processes import command
from tests.support.pulsar import CLUSTER, Lab, PulsarStage, other_than
from tests.support.pulsar_programs import Commander
from tests.support.stage import Stage

pytestmark = pytest.mark.live

VERIFY_S = 60


@pytest.fixture
def commander(stage: Stage, pulsar: LocalPulsar) -> Commander:
    return Commander(stage, pulsar)


def test_an_unload_lands_where_it_should_and_a_split_cuts_as_asked(pulsar: LocalPulsar, commander: Commander):
    lab = Lab(pulsar)
    moved, cut, *_ = lab.bundles()
    topic = lab.topic_in(moved)
    middle = (cut.range.lower + cut.range.upper) // 2
    split = commander.split(cut, owner=lab.assigned(cut), at=[middle + 7, middle])
    with lab.traffic([topic]):
        for _ in range(3):
            owner = lab.until(lambda: lab.owner(moved), "an owner")
            destination = other_than(lab, owner)
            unload = commander.unload(moved, owner=owner, to=destination)
            commander.execute()
            results = commander.results()
            if lab.owner(moved) == destination:
                break
            missed = f"not on {destination}"
            assert missed in str(results[unload]["reason"]), (
                "a client's own lookup may come first; it is told"
            )
        assert lab.owner(moved) == destination, "while producers were connected"
    found = results[unload]
    assert (found["outcome"], found["broker"]) == ("succeeded", destination)
    assert (found["bundles"], found["done_before"]) == ([], False)
    children = [
        str(Bundle(lab.namespace, BundleRange(low, high)))
        for low, high in ((cut.range.lower, middle), (middle, middle + 7), (middle + 7, cut.range.upper))
    ]
    assert results[split]["outcome"] == "succeeded", results[split]
    assert results[split]["bundles"] == children
    assert results[split]["duration_s"] < 15
    assert set(children) <= set(map(str, lab.bundles()))
    assert len(lab.bundles()) == 6


def test_what_is_delivered_again_gives_the_same_result_undone(pulsar: LocalPulsar, commander: Commander):
    lab = Lab(pulsar)
    moved, cut, *_ = lab.bundles()
    owner = lab.assigned(moved)
    destination = other_than(lab, owner)
    unload = commander.unload(moved, owner=owner, to=destination)
    split = commander.split(cut, owner=lab.assigned(cut), at=[cut.range.lower + 5])
    with ExitStack() as stack:
        loop = commander.start(stack)
        loop._actions.commit = lambda: None  # type: ignore[method-assign]  # killed just before
        loop.run(once=True)
    first = commander.results()
    bundles = lab.bundles()
    commander.execute()
    again = commander.results()
    assert commander.results_count() == 4
    for action in (unload, split):
        assert (first[action]["done_before"], again[action]["done_before"]) == (False, True)
        assert again[action]["outcome"] == first[action]["outcome"] == "succeeded"
    assert (lab.owner(moved), lab.bundles()) == (destination, bundles)
    commander.execute()
    assert commander.results_count() == 4, "committed: not delivered a third time"


def test_what_must_not_be_carried_out_is_skipped_with_its_reason(pulsar: LocalPulsar, commander: Commander):
    lab = Lab(pulsar)
    bundle, cut, *_ = lab.bundles()
    owner = lab.assigned(bundle)
    cutter = lab.assigned(cut)
    other = other_than(lab, owner)
    nowhere = Bundle(f"{lab.namespace}-gone", bundle.range)
    half = Bundle(lab.namespace, BundleRange(bundle.range.lower, bundle.range.lower + 9))
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    wanted = {
        commander.unload(bundle, owner=owner, to=other, epoch=None): "no-epoch",
        commander.unload(bundle, owner=owner, to=other, epoch=5, dry_run=True): "dry-run",
        commander.unload(bundle, owner=owner, to=other, epoch=4): "old-epoch",
        commander.unload(bundle, owner=owner, to=other, epoch=5, expires_at=past): "expired",
        commander.unload(bundle, owner=other, to=other_than(lab, owner, other), epoch=5): "owner-changed",
        commander.unload(bundle, owner=owner, to="127.0.0.1:9", epoch=5): "destination-gone",
        commander.unload(half, owner=owner, to=other, epoch=5): "bundle-gone",
        commander.unload(nowhere, owner=owner, to=other, epoch=5): "namespace-gone",
        commander.split(half, owner=owner, at=[half.range.lower + 1], epoch=5): "bundle-gone",
        commander.split(cut, owner=cutter, at=[cut.range.lower], epoch=5): "bad-boundaries",
        commander.split(cut, owner=cutter, at=[], epoch=5): "bad-boundaries",
        commander.split(
            cut, owner=other_than(lab, cutter), at=[cut.range.lower + 1], epoch=5
        ): "owner-changed",
    }
    before = lab.bundles()
    commander.execute()
    results = commander.results()
    found = {action: str(result["reason"]).partition(":")[0] for action, result in results.items()}
    assert found == wanted
    assert {result["outcome"] for result in results.values()} == {"skipped"}
    assert (lab.owner(bundle), lab.bundles()) == (owner, before)


@pytest.fixture(params=["kafka", "pulsar"])
def either(request: pytest.FixtureRequest, pulsar: LocalPulsar, tmp_path: Path) -> Iterator[Commander]:
    """A commander whose topics are on Kafka, or on Pulsar."""
    if request.param == "kafka":
        yield Commander(request.getfixturevalue("stage"), pulsar)
        return
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield Commander(stage, pulsar)
    stage.close()


def test_epochs_outlive_a_restart_and_pauses_are_obeyed_at_once(pulsar: LocalPulsar, either: Commander):
    commander, lab = either, Lab(pulsar)
    commander.execute()
    assert commander.results_count() == 0, "there is nothing to do yet"
    commander.stage.send_raw(b"east-1", b"no action", to=commander.stage.topics.actions)
    bundle = lab.bundles()[0]
    owner = lab.assigned(bundle)
    other = other_than(lab, owner)
    shown = commander.unload(bundle, owner=owner, to=other, epoch=7)
    commander.execute(dry_run=True)
    old = commander.unload(bundle, owner=owner, to=other, epoch=6)
    commander.execute()
    commander.control(paused=True, who="ann", why="an upgrade")
    commander.clear_control(b"" if isinstance(commander.stage, PulsarStage) else None)
    paused = commander.unload(bundle, owner=owner, to=other, epoch=7)
    commander.execute()
    assert lab.owner(bundle) == owner
    commander.control(paused=False)
    resumed = commander.unload(bundle, owner=owner, to=other, epoch=7)
    commander.execute()
    results, count = commander.results(), commander.results_count()
    message = [str(results[action]["reason"]) for action in (shown, old, paused)]
    assert message[0].startswith("executor-dry-run: ")
    assert message[1].startswith("old-epoch: ")
    assert message[2] == "paused: the cluster is paused by ann: an upgrade", "a tombstone resumes nothing"
    assert results[resumed]["outcome"] == "succeeded"
    assert lab.owner(bundle) == other
    commander.execute()
    assert commander.results_count() == count, "what was dealt with does not come again"


def test_without_a_destination_pulsar_chooses_and_the_result_says_where(pulsar: LocalPulsar, stage: Stage):
    lab, commander = Lab(pulsar), Commander(stage, pulsar, verify_timeout_s=5)
    bundle = lab.bundles()[2]
    owner = lab.assigned(bundle)
    action = commander.unload(bundle, owner=owner, to=None)
    commander.execute()
    result = commander.results()[action]
    assert result["broker"] == lab.owner(bundle)
    assert (result["outcome"] == "succeeded") == (result["broker"] != owner), (
        "it may come back, which has failed"
    )


def test_the_command_says_what_is_wrong(
    pulsar: LocalPulsar, commander: Commander, stage: Stage, tmp_path: Path
):
    lab = Lab(pulsar)
    bundle = lab.bundles()[0]
    action = commander.unload(bundle, owner=lab.assigned(bundle), to=None, dry_run=True)
    token = tmp_path / "token"
    token.write_text("")
    target = f'[targets."{CLUSTER}".pulsar]\nadmin_url = "{{}}"\n'
    there = target.format(pulsar.admin_url)
    away = stage.settings(base=target.format("http://127.0.0.1:1"), file="a.toml")
    tokenless = stage.settings(base=f'{there}token_file = "{token}"', file="b.toml")
    topicless = stage.settings(base=there, file="c.toml", topics__actions="none")
    cases = (
        (commander.config, 0, "skipped: dry-run"),
        (away, 6, "check admin_url"),
        (tokenless, 5, "holds no token"),
        (topicless, 5, "trimtab topics create"),
    )
    for config, code, message in cases:
        asked = ("execute", "pulsar", CLUSTER, "--config", str(config), "--once")
        assert message in command(*asked, code=code).stderr
    assert commander.results()[action]["outcome"] == "skipped"


def test_unloads_of_equal_ranges_in_two_namespaces_do_not_cross(pulsar: LocalPulsar, commander: Commander):
    """Pulsar 4.0 keeps a destination by its range alone, so two of them at once cross over.

    The last bundle stays: the lookup of a broker's own reader may use up its hint, as ``Lab`` says.
    """
    labs = [Lab(pulsar), Lab(pulsar)]
    wanted: dict[str, str] = {}
    for bundles in zip(*(lab.bundles()[:-1] for lab in labs), strict=True):
        taken: list[str] = []
        for lab, bundle in zip(labs, bundles, strict=True):
            owner = lab.assigned(bundle)
            destination = next(
                (each for each in pulsar.broker_ids if each not in (owner, *taken)), other_than(lab, owner)
            )
            taken.append(destination)
            wanted[commander.unload(bundle, owner=owner, to=destination)] = destination
    commander.execute()
    results = commander.results()
    assert {id_: (results[id_]["outcome"], results[id_]["broker"]) for id_ in wanted} == {
        id_: ("succeeded", destination) for id_, destination in wanted.items()
    }


def delete(lab: Lab) -> None:
    """Delete a namespace with all the topics that ``assigned`` made in it."""
    for bundle in lab.bundles():
        for topic in lab.admin.topics(bundle):
            lab.delete(f"persistent/{topic.removeprefix('persistent://')}?force=true")
    lab.delete(f"namespaces/{lab.namespace}")


EARLY = [pytest.param(when, marks=pytest.mark.slow) for when in ("before the execution", "before the call")]


@pytest.mark.parametrize("when", [*EARLY, "after the call"])
@pytest.mark.parametrize("kind", ["unload", "split"])
def test_a_namespace_deleted_meanwhile_is_named_at_once_and_the_others_go_on(
    pulsar: LocalPulsar, stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
):
    """Around the call itself all checks before it have passed; what is looked at after it is gone."""
    commander = Commander(stage, pulsar, verify_timeout_s=VERIFY_S)
    gone, stays = Lab(pulsar, bundles_count=1), Lab(pulsar, bundles_count=1)
    (bundle,), (moved,) = gone.bundles(), stays.bundles()
    owner, source = gone.assigned(bundle), stays.assigned(moved)
    if kind == "unload":
        first = commander.unload(bundle, owner=owner, to=other_than(gone, owner))
    else:
        first = commander.split(bundle, owner=owner, at=[bundle.range.lower + 5])
    last = commander.unload(moved, owner=source, to=other_than(stays, source))
    plain: Callable[..., None] = getattr(PulsarAdmin, kind)

    def call(self: PulsarAdmin, named: Bundle, *arguments: object, **more: object) -> None:
        if named == bundle and when == "before the call":
            delete(gone)
        plain(self, named, *arguments, **more)
        if named == bundle and when == "after the call":
            delete(gone)

    monkeypatch.setattr(PulsarAdmin, kind, call)
    if when == "before the execution":
        delete(gone)
    commander.execute()
    result = commander.results()[first]
    assert result["outcome"] == "skipped", result
    assert result["reason"].startswith(f"namespace-gone: Pulsar knows no namespace {gone.namespace}")
    assert result["duration_s"] < VERIFY_S, "nobody waits for what cannot come"
    assert commander.results()[last]["outcome"] == "succeeded"
    commander.execute()
    assert commander.results_count() == 2, "none is told again"
