"""Executors: they carry actions out, verify that it happened, and say what became of them.

An executor is an ordinary user of the message contract. It decides only whether an action may still be carried out.
"""
