"""How topics on Pulsar are made: which, on which side, and what a retention that exists is compared with."""

import pytest

from streaming.pulsar.topics import _Retention, specs_of
from streaming.settings import InputSettings, OutputSettings, PulsarTopics, Settings


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


def test_each_side_on_pulsar_has_its_topics_and_outputs_are_deduplicated() -> None:
    url = "pulsar://a:1"
    mixed = Settings(
        input=InputSettings(url="kafka://k:9092"),
        output=OutputSettings(url=url, pulsar=PulsarTopics(namespace="ops/t")),
    )
    ((link, specs),) = specs_of(mixed, input_partitions=4).items()
    assert link.service_url == url
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

    alone = Settings(input=InputSettings(url=url))
    ((_, specs),) = specs_of(alone, input_partitions=4).items()
    assert len(specs) == 9
    assert [spec.partitions for spec in specs if spec.name.endswith("trimtab.input")] == [4]
    assert specs_of(Settings(), input_partitions=1) == {}
