"""Everything that uses the Pulsar client or its admin API, and every way around their faults."""
