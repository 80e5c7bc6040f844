"""Kafka clusters as state machines: their reports, what is remembered of their reassignments, their rounds."""
