"""Real brokers on this machine, without Docker, for the demo and the tests. Not part of the wheel."""
