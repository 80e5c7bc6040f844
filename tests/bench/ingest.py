"""From a report's bytes to columns in the controller's hands."""

from functools import partial

from state.closing import Identity
from state.controller import Controller
from state.settings import ClusterSettings
from state.store import DictStore
from streaming.contract.origin import Origin
from streaming.transport.intake import Intake, Record
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet
from tests.bench.policies import FixedSettings
from tests.bench.report import Limit, Row, Section
from tests.bench.timing import best_cpu_s

_BROKERS_COUNT = 50
"""So few that a call takes milliseconds, so that some calls are not disturbed."""
_MB = 1e6
_SETTINGS = FixedSettings(ClusterSettings())


def measure_ingest(*, quick: bool) -> Section:
    """Decoding and taking reports, of brokers never seen and of brokers seen before."""
    times = 2 if quick else 100
    fleet = Fleet(brokers_count=_BROKERS_COUNT)
    rounds = [fleet.reports(time_ms=number * ROUND_MS) for number in range(4)]
    size_mb = sum(map(len, rounds[0])) / _MB
    strangers = [_strangers(rounds[0], number) for number in range(min(times, 20))]
    first = min(best_cpu_s(partial(_ingest, reports), times=1) for reports in strangers)
    known = min(best_cpu_s(partial(_ingest, reports), times=times) for reports in rounds)
    return Section(
        title="Decoding and ingesting load reports",
        method=f"Reports of {BUNDLES_COUNT} bundles, {size_mb * 1000 / _BROKERS_COUNT:.0f} kB each, from bytes to columns in "
        "the controller's open round; CPU time of one core. Names of bundles are checked once: a broker's first report "
        "takes longer than those that follow.",
        rows=[
            Row(
                name="reports of brokers seen before",
                value=size_mb / known,
                unit="MB/s",
                limit=Limit(value=250.0, at_least=True),
            ),
            Row(name="first reports, every name new", value=size_mb / first, unit="MB/s"),
        ],
    )


def _strangers(reports: list[bytes], number: int) -> list[bytes]:
    """The same reports with bundles that were never seen before."""
    return [report.replace(b"/namespace-", b"/name-%04d-" % number) for report in reports]


def _ingest(reports: list[bytes]) -> None:
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=_SETTINGS)
    intake = Intake(lambda _: controller, max_record_bytes=2**25)
    for offset, value in enumerate(reports):
        _, refused = intake.take(
            Record(value=value, origin=Origin(topic="bench", partition=0, offset=offset))
        )
        assert refused is None, f"a report was refused: {refused}"
