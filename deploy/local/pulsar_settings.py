"""The settings of the local Pulsar's processes: small, quick, on loopback, with Pulsar's own balancing off.

Keys are those of `zoo.cfg`, `bookkeeper.conf`, `broker.conf` and `standalone.conf`; what is not named is Pulsar's
default.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

LoadManager = Literal["modular", "extensible", "none"]

_LOADBALANCE = "org.apache.pulsar.broker.loadbalance"
LOAD_MANAGERS: Mapping[LoadManager, str] = {
    "modular": f"{_LOADBALANCE}.impl.ModularLoadManagerImpl",
    "extensible": f"{_LOADBALANCE}.extensions.ExtensibleLoadManagerImpl",
    "none": f"{_LOADBALANCE}.NoopLoadManager",
}

_OPENED = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_METADATA = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"

JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j2.is.webapp=false",
    f"-Dbookkeeper.metadata.bookie.drivers={_METADATA}BookieDriver",
    f"-Dbookkeeper.metadata.client.drivers={_METADATA}ClientDriver",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
)
"""Options of every process. Java's second compiler would cost more time than it saves within minutes."""

_LEAN: Mapping[str, object] = {
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    "transactionCoordinatorEnabled": "false",
    "webSocketServiceEnabled": "false",
    "functionsWorkerEnabled": "false",
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "numExecutorThreadPoolSize": 2,
    "numOrderedExecutorThreads": 2,
    "numCacheExecutorThreadPoolSize": 2,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerMaxEntriesPerLedger": 100,
}
"""One replica of everything, few threads, nothing that the tests do not use; ledgers so short that tests read past the end of one."""

_STORAGE: Mapping[str, object] = {
    "allowLoopback": "true",
    "journalSyncData": "false",
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.99,
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
}


def zookeeper(*, host: str, port: int, store: Path) -> dict[str, object]:
    """`zoo.cfg`."""
    return {
        "tickTime": 1000,
        "dataDir": store,
        "clientPort": port,
        "clientPortAddress": host,
        "maxClientCnxns": 0,
    }


def bookie(*, host: str, port: int, zookeeper: str, store: Path) -> dict[str, object]:
    """`bookkeeper.conf`. The metadata URI goes without the usual `/ledgers`: the metadata driver adds it."""
    return {
        **_STORAGE,
        "bookiePort": port,
        "metadataServiceUri": f"metadata-store:zk:{zookeeper}",
        "advertisedAddress": host,
        "journalDirectories": store / "journal",
        "ledgerDirectories": store / "ledgers",
        "httpServerEnabled": "false",
        "dbStorage_writeCacheMaxSizeMb": 32,
        "dbStorage_readAheadCacheMaxSizeMb": 32,
    }


def broker(
    *,
    cluster: str,
    host: str,
    port: int,
    web_port: int,
    zookeeper: str,
    load_manager: LoadManager,
    extra: Mapping[str, object],
) -> dict[str, object]:
    """`broker.conf` of one broker of a cluster.

    Reports are as fresh as possible: statistics every 5 s, and a threshold of 1 %. Brokers on one host report the host's
    CPU and bandwidth, so only rates and throughput tell them apart here.
    """
    metadata = f"zk:{zookeeper}"
    return {
        **_LEAN,
        "bindAddress": host,
        "advertisedAddress": host,
        "clusterName": cluster,
        "brokerServicePort": port,
        "webServicePort": web_port,
        "metadataStoreUrl": metadata,
        "configurationMetadataStoreUrl": metadata,
        "metadataStoreSessionTimeoutMillis": 10000,
        "loadManagerClassName": LOAD_MANAGERS[load_manager],
        "loadBalancerEnabled": "true",
        "loadBalancerSheddingEnabled": "false",
        "loadBalancerAutoBundleSplitEnabled": "false",
        "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
        "loadBalancerReportUpdateMinIntervalMillis": 1000,
        "loadBalancerReportUpdateMaxIntervalMinutes": 1,
        "loadBalancerReportUpdateThresholdPercentage": 1,
        "loadBalancerHostUsageCheckIntervalMinutes": 1,
        "loadBalancerResourceQuotaUpdateIntervalMinutes": 1,
        "loadBalancerOverrideBrokerNicSpeedGbps": 1,
        "statsUpdateFrequencyInSecs": 5,
        "statsUpdateInitialDelayInSecs": 1,
        "managedLedgerCacheSizeMB": 32,
        **extra,
    }


def standalone(
    *, port: int, web_port: int, load_manager: LoadManager, extra: Mapping[str, object]
) -> dict[str, object]:
    """`standalone.conf`: deduplication on, no message deleted."""
    return {
        **_LEAN,
        **_STORAGE,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "clusterName": "standalone",
        "brokerServicePort": port,
        "webServicePort": web_port,
        "loadManagerClassName": LOAD_MANAGERS[load_manager],
        "loadBalancerEnabled": "false" if load_manager == "none" else "true",
        "loadBalancerSheddingEnabled": "false",
        "loadBalancerAutoBundleSplitEnabled": "false",
        "brokerDeduplicationEnabled": "true",
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
        "managedLedgerCacheSizeMB": 64,
        "dbStorage_writeCacheMaxSizeMb": 64,
        "dbStorage_readAheadCacheMaxSizeMb": 64,
        **extra,
    }
