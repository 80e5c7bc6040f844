"""How fast a Kafka reassignment may run: what is throttled, the lowest rate at which it ever ends, the rate to use, and when it is done.

Everything is a whole number of bytes or bytes/s in integer arithmetic, and no result depends on the order of its input.
Unknown stays unknown: a missing rate or size gives None, and the partition that lacks it is named.
"""
