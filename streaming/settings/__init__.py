"""The settings: one tree, composed of what each policy, the rounds, the guards and this layer declare.

``load`` reads defaults, ``trimtab.toml``, the environment and flags, in this order, and refuses what it does not
know. ``ClusterSettingsSource`` answers what is in force for one cluster, also under a control event's overlay.
Nothing here imports Spark or a broker's client, and nothing is read again after the start.
"""

from streaming.settings.catalog import SettingsError
from streaming.settings.clusters import ClusterSettingsSource
from streaming.settings.load import Loaded, load
from streaming.settings.sections import (
    ClusterSection,
    ControllerSettings,
    InputSettings,
    MetricsSettings,
    OutputSettings,
    Program,
    PulsarInput,
    PulsarTopics,
    Settings,
    SparkSettings,
    TopicNames,
)
from streaming.settings.targets import KafkaTarget, PulsarTarget, SecuritySettings, TargetSection
