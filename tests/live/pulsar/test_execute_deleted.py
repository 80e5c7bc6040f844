"""A namespace is deleted while actions on its bundles are under way: that is what their results say, and the others go on."""

from collections.abc import Callable

import pytest

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle
from streaming.pulsar.admin import PulsarAdmin
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.lab import Lab, other_than
from tests.live.stage import Stage

pytestmark = pytest.mark.live

VERIFY_S = 60


@pytest.fixture
def commander(stage: Stage, pulsar: LocalPulsar) -> Commander:
    return Commander(stage, pulsar, verify_timeout_s=VERIFY_S)


def delete(lab: Lab) -> None:
    """Delete a namespace with all the topics that ``assigned`` made in it."""
    for bundle in lab.bundles():
        for topic in lab.admin.topics(bundle):
            lab.delete(f"persistent/{topic.removeprefix('persistent://')}?force=true")
    lab.delete(f"namespaces/{lab.namespace}")


def asked(commander: Commander, kind: str, bundle: Bundle, *, owner: str, to: str) -> str:
    """Publish an unload or a split; returns its id."""
    if kind == "unload":
        return commander.unload(bundle, owner=owner, to=to)
    return commander.split(bundle, owner=owner, at=[bundle.range.lower + 5])


def assert_gone(commander: Commander, lab: Lab, *actions: str) -> None:
    for action in actions:
        result = commander.results()[action]
        assert result["outcome"] == "skipped", result
        assert str(result["reason"]).startswith(f"namespace-gone: Pulsar knows no namespace {lab.namespace}")


def test_a_namespace_deleted_between_decision_and_execution_is_left_alone_and_the_others_go_on(
    pulsar: LocalPulsar, commander: Commander
) -> None:
    gone, stays = Lab(pulsar), Lab(pulsar, bundles_count=1)
    bundle, (moved,) = gone.bundles()[0], stays.bundles()
    owner, source = gone.assigned(bundle), stays.assigned(moved)
    actions = [
        asked(commander, kind, bundle, owner=owner, to=other_than(gone, owner))
        for kind in ("unload", "split")
    ]
    last = commander.unload(moved, owner=source, to=other_than(stays, source))
    delete(gone)
    commander.execute()
    assert_gone(commander, gone, *actions)
    assert commander.results()[last]["outcome"] == "succeeded"
    commander.execute()
    assert commander.results_count() == 3, "none is told again"


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.slow), "after"])
@pytest.mark.parametrize("kind", ["unload", "split"])
def test_a_namespace_deleted_around_the_call_itself_is_named_at_once_and_the_others_go_on(
    pulsar: LocalPulsar, commander: Commander, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    """All checks before the call passed; what is looked at after the call is gone."""
    gone, stays = Lab(pulsar, bundles_count=1), Lab(pulsar, bundles_count=1)
    (bundle,), (moved,) = gone.bundles(), stays.bundles()
    owner, source = gone.assigned(bundle), stays.assigned(moved)
    first = asked(commander, kind, bundle, owner=owner, to=other_than(gone, owner))
    last = commander.unload(moved, owner=source, to=other_than(stays, source))
    plain: Callable[..., None] = getattr(PulsarAdmin, kind)

    def call(self: PulsarAdmin, named: Bundle, *arguments: object, **more: object) -> None:
        if named == bundle and when == "before":
            delete(gone)
        plain(self, named, *arguments, **more)
        if named == bundle and when == "after":
            delete(gone)

    monkeypatch.setattr(PulsarAdmin, kind, call)
    commander.execute()
    assert_gone(commander, gone, first)
    assert commander.results()[first]["took_s"] < VERIFY_S, "nobody waits for what cannot come"
    assert commander.results()[last]["outcome"] == "succeeded"
    commander.execute()
    assert commander.results_count() == 2, "none is told again"
