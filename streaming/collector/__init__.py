"""Collectors: they read brokers and write what they find to the input topic.

A collector is an ordinary user of the message contract and decides nothing. Read times are event times: what a broker
says of its own clock is not used.
"""
