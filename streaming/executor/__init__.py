"""Executors: they carry actions out, verify the effect, and report the results.

An executor is an ordinary user of the message contract. It decides only whether an action may still be carried out.
"""
