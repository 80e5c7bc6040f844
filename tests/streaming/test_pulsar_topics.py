"""How topics on Pulsar are made: which, on which side, and what a retention that exists is compared with."""

import pytest

from streaming.pulsar.link import PulsarLink
from streaming.pulsar.topics import _Retention, specs_of
from streaming.settings import PulsarTopics, Settings, TopicNames


@pytest.mark.parametrize(
    ("kept", "needed", "covers"),
    [
        ((-1, -1), (-1, -1), True),
        ((-1, -1), (1440, 100), True),
        ((1440, -1), (1440, -1), True),
        ((1439, -1), (1440, -1), False),
        ((-1, 100), (-1, -1), False),
        ((0, 0), (1440, -1), False),
    ],
)
def test_a_retention_covers_another_where_both_limits_do(
    kept: tuple[int, int], needed: tuple[int, int], *, covers: bool
) -> None:
    assert _Retention(*kept).covers(_Retention(*needed)) is covers


def test_outputs_are_deduplicated_and_each_topic_is_made_in_the_namespace_of_its_side() -> None:
    link = PulsarLink("pulsar://a:1", "output", PulsarTopics(namespace="ops/t"))
    names = TopicNames()
    written = frozenset(names.all) - {names.input, names.control}
    specs = specs_of(link, Settings(), written, input_partitions=4)
    assert {spec.name.rpartition("/")[2]: spec.is_deduplicated for spec in specs} == {
        "trimtab.actions": True,
        "trimtab.actions.dry-run": True,
        "trimtab.audit": True,
        "trimtab.dead-letter": True,
        "trimtab.executor.kafka": False,
        "trimtab.commits-trimtab": False,
        "trimtab.beats": False,
    }
    assert all(spec.is_single and spec.name.startswith("persistent://ops/t/") for spec in specs)

    specs = specs_of(link, Settings(), frozenset(names.all), input_partitions=4)
    assert len(specs) == 9
    assert [spec.partitions for spec in specs if spec.name.endswith("trimtab.input")] == [4]
