"""What docs/pulsar.md says is what there is."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from streaming.collect.metrics import CollectorMetrics
from streaming.execute.metrics import ExecutorMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "pulsar.md").read_text(encoding="utf-8")


def names(registry: CollectorRegistry) -> set[str]:
    """As they are scraped."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()
    }


def test_every_metric_of_collector_and_executor_has_a_row_and_no_other_has() -> None:
    rows = set(re.findall(r"(?m)^\| `(trimtab_(?:collector|executor)_\w+)` \|", PAGE))
    assert rows == names(CollectorMetrics("c").registry) | names(ExecutorMetrics("c").registry)
