"""What Kafka and Pulsar both give: the Protocols, the plain records and the errors that programs know of them."""
