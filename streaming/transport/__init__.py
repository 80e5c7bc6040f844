"""What Kafka and Pulsar have in common: the Protocols, the plain records and the errors that programs use."""
