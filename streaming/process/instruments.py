"""Metrics of Prometheus' client for the families of the catalogue."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.contract.families import Family


def counter(registry: CollectorRegistry, family: Family) -> Counter:
    """The counter of a family."""
    return Counter(family.name, family.text, family.labels, registry=registry)


def gauge(registry: CollectorRegistry, family: Family) -> Gauge:
    """The gauge of a family."""
    return Gauge(family.name, family.text, family.labels, registry=registry)


def histogram(registry: CollectorRegistry, family: Family) -> Histogram:
    """The histogram of a family."""
    return Histogram(family.name, family.text, family.labels, registry=registry, buckets=family.buckets)
