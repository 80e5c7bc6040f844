"""The root of the settings, and how layers of values become one validated tree.

Layers arrive with their types already checked by ``reader``; here they are merged, each cluster's section is laid
over ``[pulsar]`` and ``[kafka]``, and every section checks itself. The process's environment is never read from here.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from state.settings import KafkaSettings, PulsarSettings
from streaming.settings.sections import (
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


class Settings(BaseSettings):
    """Everything trimtab can be told. ``Settings()`` is the defaults alone."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    controller: ControllerSettings = Field(default_factory=ControllerSettings)
    input: InputSettings = Field(default_factory=InputSettings)
    output: OutputSettings = Field(default_factory=OutputSettings)
    topics: TopicNames = Field(default_factory=TopicNames)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    pulsar: PulsarSettings = Field(default_factory=PulsarSettings)
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    clusters: Mapping[str, ClusterSection] = Field(default_factory=dict)
    """By cluster name what is in force there, ``[pulsar]`` and ``[kafka]`` included; clusters without a section are
    absent."""
    targets: Mapping[str, TargetSection] = Field(default_factory=dict)
    """By cluster name how it is reached by collectors and executors."""

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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave out pydantic's own reading of the environment, which knows neither our errors nor our origins."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def compose(*layers: Tree) -> Settings:
    """The layers as one tree, the first one winning; raises pydantic's ValidationError for values that contradict."""

    class Composed(Settings):
        @model_validator(mode="before")
        @classmethod
        def _lay_clusters_over_systems(cls, tree: Tree) -> Tree:
            base = {system: tree.get(system, {}) for system in ("pulsar", "kafka")}
            sections = {name: merge(base, own) for name, own in tree.get("clusters", {}).items()}
            return {**tree, "clusters": sections}

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_pydantic: object, **_named: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(InitSettingsSource(settings_cls, init_kwargs=layer) for layer in layers)

    return Settings.model_construct(**dict(Composed()))
