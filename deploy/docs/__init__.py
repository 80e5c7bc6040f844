"""The generated part of ``docs/``: schemas, AsyncAPI, messages, settings, metrics, commands.

``python -m deploy.docs`` writes it, ``--check`` says what is stale. Everything in it is taken from declarations and
from messages that the tests hold the code to, so it cannot say what the code does not do. Used from a clone of the
repository; an installed trimtab never needs it.
"""
