"""The calls of the admin API that a balancer needs, with typed answers. Nothing here decides anything.

Requests about one broker are sent to that broker, whose address is its id; all others go to the first address that
answers: those of ``admin_url``, then the brokers found before. A 4xx is an answer, too; only an address that cannot be
reached is skipped. ``httpx`` is loaded with this module, so import it late.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from policies.splitting.ranges import Bundle, BundleRange, position_of
from policies.wording import counted
from state.facts import SPLIT_ALGORITHM
from streaming.pulsar.http import AdminError, HttpClient, Method, addresses
from streaming.settings.targets import PulsarTarget

Value = TypeVar("Value")

EXTENSIBLE: Final = "ExtensibleLoadManagerImpl"
"""Pulsar's load manager of PIP-192."""


class BrokerConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a broker's effective configuration that matters here; Pulsar answers every value as text."""

    cluster_name: str
    load_manager_class_name: str = ""
    load_balancer_enabled: str = ""
    load_balancer_shedding_enabled: str = ""
    load_balancer_auto_bundle_split_enabled: str = ""
    supported_namespace_bundle_split_algorithms: str = ""

    @property
    def load_manager(self) -> str:
        """The load manager's class without the package."""
        return self.load_manager_class_name.rpartition(".")[2]

    @property
    def sheds(self) -> bool:
        """Whether Pulsar's own shedding is on at this broker."""
        return self.load_balancer_enabled == self.load_balancer_shedding_enabled == "true"

    @property
    def splits(self) -> bool:
        """Whether Pulsar's own splitting of bundles is on at this broker."""
        return self.load_balancer_enabled == self.load_balancer_auto_bundle_split_enabled == "true"

    @property
    def split_algorithms(self) -> list[str] | None:
        """The algorithms that a split may use, ascending; None where this broker does not report them."""
        text = self.supported_namespace_bundle_split_algorithms
        names = (name.strip() for name in text.strip("[] ").split(","))
        return sorted(filter(None, names)) if text else None


class IsolationPolicy(msgspec.Struct, frozen=True):
    """Pulsar's ``NamespaceIsolationData``: regular expressions of namespaces and of brokers."""

    namespaces: list[str] = []
    primary: list[str] = []
    secondary: list[str] = []


class _FailureDomain(msgspec.Struct, frozen=True):
    brokers: list[str] = []


class _Bundles(msgspec.Struct, frozen=True):
    boundaries: list[str]


class _Lookup(msgspec.Struct, frozen=True):
    httpUrl: str | None = None  # noqa: N815  Pulsar's names
    httpUrlTls: str | None = None  # noqa: N815
    brokerUrl: str | None = None  # noqa: N815
    brokerUrlTls: str | None = None  # noqa: N815
    brokerUrlSsl: str | None = None  # noqa: N815


_NOBODY_OWNS = 412
"""Status of a question about a bundle that no broker owns."""


class PulsarAdmin:
    """The cluster behind a target. Thread-safe. Every method raises ``AdminError``."""

    def __init__(self, http: HttpClient, target: PulsarTarget) -> None:
        self._http = http
        self._target = target
        self._scheme = target.admin_url.partition("://")[0]
        self._entries = addresses(target.admin_url)
        self._broker_urls: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def address_of(self, broker: str) -> str:
        """``http://host:port`` of a broker's web service."""
        host, _, port = broker.rpartition(":")
        return f"{self._scheme}://{host}:{self._target.web_port or port}"

    def configuration(self, broker: str | None = None) -> BrokerConfiguration:
        """The effective configuration of a broker, or of any that answers."""
        path = "/admin/v2/brokers/configuration/runtime"
        return self.read(path, BrokerConfiguration, broker=broker)

    def version(self) -> str:
        """Pulsar's version at a broker that answers."""
        return self.get("/admin/v2/brokers/version").decode(errors="replace").strip().strip('"')

    def ahead_s(self, now_s: Callable[[], float]) -> float | None:
        """Seconds by which a broker's clock is ahead of ``now_s``, to the second; None where its answer has no date."""
        path = "/admin/v2/brokers/version"
        return self._try_each_address(lambda base: self._http.ahead_s(base + path, now_s))

    def brokers(self, cluster: str) -> list[str]:
        """Ids of the brokers that are alive, ascending; ``cluster`` is Pulsar's own name."""
        brokers = sorted(self.read(f"/admin/v2/brokers/{quote(cluster)}", list[str]))
        with self._lock:
            self._broker_urls = tuple(map(self.address_of, brokers))
        return brokers

    def load_report(self, broker: str) -> bytes:
        """A broker's load report as it sends it; empty where its load manager has none."""
        return self.get("/admin/v2/broker-stats/load-report", broker=broker)

    def topic_stats(self, broker: str) -> bytes:
        """A broker's statistics by namespace, range, persistence and topic, as it sends them."""
        return self.get("/admin/v2/broker-stats/topics", broker=broker)

    def owned_bundles(self, cluster: str, broker: str) -> set[str]:
        """Full names of the bundles a broker owns; only that broker knows them, so it is asked. WARNING: see ``owner``."""
        path = f"/admin/v2/brokers/{quote(cluster)}/{quote(broker)}/ownedNamespaces"
        return set(self.read(path, dict[str, object], broker=broker))

    def boundaries(self, namespace: str) -> list[int]:
        """Boundaries of a namespace's bundles, ascending, both ends included."""
        bundles = self.read(f"/admin/v2/namespaces/{quote(namespace)}/bundles", _Bundles)
        return sorted(int(boundary, 16) for boundary in bundles.boundaries)

    def bundles(self, namespace: str) -> list[Bundle]:
        """The bundles of a namespace, ascending."""
        edges = self.boundaries(namespace)
        return [Bundle(namespace, BundleRange(low, high)) for low, high in pairwise(edges)]

    def owner(self, bundle: Bundle, alive: Iterable[str]) -> str | None:
        """Which of the brokers that are ``alive`` owns a bundle; None: none of them. Assigns nothing; the bundle has to be there.

        WARNING: whoever asks brokers for ``owned_bundles`` instead, while bundles move, can hang them for ever. The broker waits for
        the bundles that it finds, on its only metadata thread, and then joins those that it has begun to take over since, which need
        that thread (``NamespaceService.getOwnedNameSpacesStatusAsync``, seen with 4.0.7 at four unloads at a time). This call answers
        at the owner alone, and redirects there; a topic that is not there keeps the answer short. Brokers are asked at their own
        addresses, because another one that is in ``admin_url`` (of a load balancer, or ``localhost``) does not tell who answered.
        """
        brokers = {self.address_of(broker): broker for broker in alive}
        path = f"/admin/v2/namespaces/{quote(bundle.namespace)}/{bundle.range}/topicHashPositions"
        query = {"topics": f"persistent://{bundle.namespace}/none"}
        try:
            url = self._try_each_address(
                lambda base: self._http.find(base + path, query=query), bases=list(brokers)
            )
        except AdminError as error:
            if error.status != _NOBODY_OWNS:
                raise
            return None
        return next((broker for base, broker in brokers.items() if url.startswith(base + "/")), None)

    def topics(self, bundle: Bundle) -> list[str]:
        """Full names of the persistent topics in a bundle, Pulsar's own (``__change_events``) left out, ascending.

        All topics of the namespace are listed, and filtered here. Pulsar's own filter (``?bundle=``) looks bundles up on its
        metadata thread: if a split changes them meanwhile, it blocks that thread, and with it the broker, for ever
        (``PersistentTopicsBase.internalGetListAsync``, seen with 4.0.7).
        """
        topics = self.read(f"/admin/v2/persistent/{quote(bundle.namespace)}", list[str])
        kept = (topic for topic in topics if not topic.rpartition("/")[2].startswith("__"))
        return sorted(topic for topic in kept if bundle.range.contains(position_of(topic)))

    def lookup(self, topic: str) -> str | None:
        """Address (``host:port``) of the broker that owns a topic's bundle; assigns the bundle to one if no broker owns it."""
        answer = self._lookup(topic)
        url = answer.httpUrlTls if self._scheme == "https" and answer.httpUrlTls else answer.httpUrl
        return None if url is None else url.partition("://")[2]

    def service_url(self, topic: str) -> str:
        """Address of the broker that owns a topic's bundle: ``pulsar://…``, or ``pulsar+ssl://…`` if the admin API uses https."""
        answer = self._lookup(topic)
        encrypted = answer.brokerUrlTls or answer.brokerUrlSsl
        url = encrypted if self._scheme == "https" and encrypted else answer.brokerUrl
        if not url:
            raise AdminError("not-pulsar", call=f"lookup of {topic}", answer="no address of a broker")
        return url

    def _lookup(self, topic: str) -> _Lookup:
        domain, _, name = topic.partition("://")
        return self.read(f"/lookup/v2/topic/{domain}/{quote(name)}", _Lookup)

    def unload(self, bundle: Bundle, *, destination: str | None) -> None:
        """Ask the owner to unload a bundle. The answer comes at once: look up afterwards whether and where the bundle went."""
        query = {} if destination is None else {"destinationBroker": destination}
        path = f"/admin/v2/namespaces/{quote(bundle.namespace)}/{bundle.range}/unload"
        self.call("PUT", path, query=query)

    def split(self, bundle: Bundle, boundaries: Sequence[int]) -> None:
        """Ask for a split at these hashes, ascending and each strictly inside (Pulsar ignores others, or never answers)."""
        query = {"splitAlgorithmName": SPLIT_ALGORITHM, "unload": "false"}
        path = f"/admin/v2/namespaces/{quote(bundle.namespace)}/{bundle.range}/split"
        self.call("PUT", path, query=query, body=list(boundaries))

    def isolation_policies(self, cluster: str) -> dict[str, IsolationPolicy]:
        """Policies by name; Pulsar answers 404 until the first one is made."""
        path = f"/admin/v2/clusters/{quote(cluster)}/namespaceIsolationPolicies"
        try:
            return self.read(path, dict[str, IsolationPolicy])
        except AdminError as error:
            if error.failure != "not-found":
                raise
            return {}

    def failure_domains(self, cluster: str) -> dict[str, list[str]]:
        """Brokers of each failure domain, ascending; Pulsar answers 404 where none was ever made."""
        path = f"/admin/v2/clusters/{quote(cluster)}/failureDomains"
        try:
            domains = self.read(path, dict[str, _FailureDomain])
        except AdminError as error:
            if error.failure != "not-found":
                raise
            return {}
        return {name: sorted(domains[name].brokers) for name in sorted(domains)}

    def tenants(self) -> list[str]:
        """Names of all tenants, ascending."""
        return sorted(self.read("/admin/v2/tenants", list[str]))

    def namespaces(self, tenant: str) -> list[str]:
        """``tenant/namespace``, ascending."""
        return sorted(self.read(f"/admin/v2/namespaces/{quote(tenant)}", list[str]))

    def anti_affinity_group(self, namespace: str) -> str | None:
        """The group of a namespace, None where it has none; Pulsar answers the bare name, in quotes or not."""
        text = (
            self.get(f"/admin/v2/namespaces/{quote(namespace)}/antiAffinity").decode(errors="replace").strip()
        )
        return None if text in {"", "null"} else text.strip('"')

    def read(
        self,
        path: str,
        kind: type[Value],
        *,
        query: Mapping[str, str] | None = None,
        broker: str | None = None,
    ) -> Value:
        """The decoded answer to a GET, from ``broker`` or from any broker that answers."""
        text = self.get(path, query=query, broker=broker)
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            answer = f"unreadable answer ({error}): {text[:100]!r}"
            raise AdminError("not-pulsar", call=f"GET {path}", answer=answer) from error

    def get(self, path: str, *, query: Mapping[str, str] | None = None, broker: str | None = None) -> bytes:
        """The raw answer to a GET, from ``broker`` or from any broker that answers."""
        if broker is not None:
            return self._http.call("GET", self.address_of(broker) + path, query=query)
        return self._try_each_address(lambda base: self._http.call("GET", base + path, query=query))

    def call(
        self, method: Method, path: str, *, query: Mapping[str, str] | None = None, body: object = None
    ) -> None:
        """Make a call that changes something, at any broker that answers."""
        self._try_each_address(lambda base: self._http.call(method, base + path, query=query, body=body))

    def _try_each_address(self, ask: Callable[[str], Value], bases: Sequence[str] = ()) -> Value:
        """The answer of the first of ``bases``, by default all known addresses, that can be reached.

        Raises the error of the very first one: a person knows the addresses of ``admin_url``, not those that were found behind them.
        """
        with self._lock:
            bases = bases or list(dict.fromkeys((*self._entries, *self._broker_urls)))
        errors = []
        for base in bases:
            try:
                return ask(base)
            except AdminError as error:
                if error.failure not in {"unreachable", "untrusted"}:
                    raise
                errors.append(error)
        if len(errors) > 1:
            errors[0].advise(
                f"{counted(len(errors) - 1, 'other broker')} of the cluster did not answer either"
            )
        raise errors[0]
