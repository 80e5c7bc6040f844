"""The root of the settings, and how layers of values are merged; ``reader`` validates them."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from state.settings import KafkaSettings, PulsarSettings
from streaming.settings.sections import (
    STRICT,
    ClusterName,
    ClusterSection,
    ControllerSettings,
    InputSettings,
    MetricsSettings,
    OutputSettings,
    SparkSettings,
    TopicNames,
    is_pulsar_url,
)
from streaming.settings.targets import TargetSection

Tree = dict[str, Any]
"""Settings as read, nested by section; it stays inside this package."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """``over`` laid over ``base``, table by table and key by key; neither is changed."""
    tree = dict(base)
    for key, value in over.items():
        below = tree.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        tree[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return tree


class Settings(BaseModel):
    """All settings of trimtab. ``Settings()`` has the defaults alone."""

    model_config = STRICT | {"frozen": True}

    controller: ControllerSettings = Field(default_factory=ControllerSettings)
    input: InputSettings = Field(default_factory=InputSettings)
    output: OutputSettings = Field(default_factory=OutputSettings)
    topics: TopicNames = Field(default_factory=TopicNames)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    pulsar: PulsarSettings = Field(default_factory=PulsarSettings)
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    clusters: Mapping[ClusterName, ClusterSection] = Field(default_factory=dict)
    """By cluster name the settings in force there, ``[pulsar]`` and ``[kafka]`` included; clusters without a section are
    absent."""
    targets: Mapping[ClusterName, TargetSection] = Field(default_factory=dict)
    """By cluster name how collectors and executors reach the cluster."""

    @property
    def output_url(self) -> str:
        """Where decisions go: the input's address where the output has none of its own."""
        return self.output.url or self.input.url

    @property
    def output_is_pulsar(self) -> bool:
        """Whether decisions go to Pulsar."""
        return is_pulsar_url(self.output_url)

    @property
    def output_bootstrap(self) -> str:
        """The output's address as Kafka's clients take it, ``host:port[,host:port]``. Raises ValueError for Pulsar."""
        return InputSettings(url=self.output_url).bootstrap
