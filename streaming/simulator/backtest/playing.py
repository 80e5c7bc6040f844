"""Candidates of a backtest, and what has to be played for each of them."""

from dataclasses import dataclass
from typing import Self

from state.closing import Identity
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.identity import identity_of
from streaming.simulator.backtest.closed import ClosedJob, play_closed
from streaming.simulator.backtest.opened import Opened, OpenJob, play_open
from streaming.simulator.backtest.reading import Read
from streaming.simulator.backtest.results import AS_RECORDED, NOBODY_ACTS
from streaming.simulator.backtest.survey import Survey
from streaming.simulator.comparing import Candidate, Run

Job = ClosedJob | OpenJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Settings to compare."""

    name: str
    identity: Identity
    settings: ClusterSettingsSource

    @classmethod
    def of(cls, name: str, settings: Settings) -> Self:
        """The settings of a file under a name."""
        return cls(name=name, identity=identity_of(settings), settings=ClusterSettingsSource(settings))


def jobs_of(
    read: Read,
    survey: Survey,
    contenders: list[Contender],
    *,
    closed: bool,
    opened: bool,
    keeps_recorded_moves: bool,
) -> list[Job]:
    """What is to be played for a cluster. The first contender's settings say how loaded a broker is."""
    jobs: list[Job] = []
    if closed:
        nobody = Candidate(name=AS_RECORDED if keeps_recorded_moves else NOBODY_ACTS, kind="nobody")
        live = [Candidate(name=each.name, kind="live", settings=each.settings) for each in contenders]
        jobs += [
            ClosedJob(
                read=read,
                survey=survey,
                candidate=candidate,
                judge=contenders[0].settings.base(survey.cluster).pulsar,
                keeps_recorded_moves=keeps_recorded_moves,
            )
            for candidate in [nobody, *live]
        ]
    if opened:
        jobs += [
            OpenJob(
                read=read,
                cluster=survey.cluster,
                name=each.name,
                identity=each.identity,
                settings=each.settings,
            )
            for each in contenders
        ]
    return jobs


def play_job(job: Job) -> Run | Opened:
    """Play one job."""
    return play_closed(job) if isinstance(job, ClosedJob) else play_open(job)


def sorted_results(jobs: list[Job], results: list[Run | Opened]) -> tuple[list[Run], list[Opened]]:
    """Closed and open runs in the order of their jobs."""
    closed = {(each.scenario, each.candidate): each for each in results if isinstance(each, Run)}
    opened = {(each.cluster, each.candidate): each for each in results if isinstance(each, Opened)}
    return (
        [closed[job.survey.cluster, job.candidate.name] for job in jobs if isinstance(job, ClosedJob)],
        [opened[job.cluster, job.name] for job in jobs if isinstance(job, OpenJob)],
    )
