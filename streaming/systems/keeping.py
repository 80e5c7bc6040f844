"""How long topics keep what is written to them, on the system that the address of their side names."""

from collections.abc import Sequence

from streaming.kafka import keeping as kafka
from streaming.kafka.link import input_link, output_link
from streaming.pulsar import keeping as pulsar
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings


def input_kept_s(settings: Settings, topics: Sequence[str]) -> dict[str, float]:
    """Seconds that topics on the input's side keep their records, by topic. Raises ``Unreachable`` or ``StartError``."""
    link = input_on_pulsar(settings)
    return kafka.kept_s(input_link(settings), topics) if link is None else pulsar.kept_s(link, topics)


def output_kept_s(settings: Settings, topics: Sequence[str]) -> dict[str, float]:
    """The same for the output's side."""
    link = output_on_pulsar(settings)
    return kafka.kept_s(output_link(settings), topics) if link is None else pulsar.kept_s(link, topics)
