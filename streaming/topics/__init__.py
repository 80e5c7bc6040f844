"""The topics trimtab uses, on Kafka and on Pulsar: what they must be, made and checked."""
