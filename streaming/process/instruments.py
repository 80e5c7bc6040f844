"""Metrics of Prometheus' client out of the catalogue's families."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming.contract.families import Family

__all__ = ["counter", "gauge", "histogram"]


def counter(registry: CollectorRegistry, family: Family) -> Counter:
    """Of a family of that kind."""
    return Counter(family.name, family.text, family.labels, registry=registry)


def gauge(registry: CollectorRegistry, family: Family) -> Gauge:
    """Of a family of that kind."""
    return Gauge(family.name, family.text, family.labels, registry=registry)


def histogram(registry: CollectorRegistry, family: Family) -> Histogram:
    """Of a family of that kind."""
    return Histogram(family.name, family.text, family.labels, registry=registry, buckets=family.buckets)
