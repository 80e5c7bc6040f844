"""A client of the part of Pulsar's admin REST API that a balancer needs.

``HttpClient`` speaks HTTP as Pulsar expects it: every redirect is followed with method, body and authorization, every
call ends in time, every failure is an ``AdminError`` that names the remedy. ``PulsarAdmin`` knows the paths and gives
typed answers. Nothing here decides anything. ``httpx`` is loaded with this package, so import it late.
"""

from streaming.pulsar.admin.admin import EXTENSIBLE, BrokerConfiguration, PulsarAdmin
from streaming.pulsar.admin.errors import AdminError, Failure
from streaming.pulsar.admin.http import HttpClient
