"""Reading a topic for a person: no consumer group and no subscription stays behind."""
