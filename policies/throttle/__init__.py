"""How fast a Kafka reassignment may run: who is throttled, the least rate that ever ends, the rate to use, and when it is done.

Everything is a whole number of bytes or bytes/s in integer arithmetic, and no result depends on the order of its input.
Unknown stays unknown: a missing rate or size gives None, and the partition that lacks it is named.
"""
