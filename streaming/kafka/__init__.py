"""Everything that uses the Kafka client, and every way around its faults."""
