"""Kafka's admin API as trimtab uses it: what is read of a cluster, and the throttle put on it and taken off again."""
