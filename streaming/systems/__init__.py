"""Kafka or Pulsar, whichever the settings name: the one place that chooses between them."""
