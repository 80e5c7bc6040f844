"""Collectors: they read brokers and write what they find to the input topic.

A collector is an ordinary user of the message contract and decides nothing. The time of an event is the time when it was
read; the clocks of brokers are not used.
"""
