"""A Pulsar topic as a log that can be read again: positions, ranges of it, and the subscription that keeps it.

Spark-free, so that all of it can be tested against a broker alone; ``streaming.spark.pulsar_source`` is the thin layer
above it. Imports neither ``pulsar`` nor ``httpx`` by itself.
"""
