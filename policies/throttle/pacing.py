"""When a throttle is set, changed and taken off while something is copied: one decision a round at most.

A minimum that comes near the rate, and moves that join, are acted on at once; everything else waits until
``min_change_interval_s`` after the last change. Without reports the throttle stays, then becomes high enough for whichever
source leads; it is never zero. At the end exactly what was added is removed. Where the network leaves less than the minimum
nothing is decided, because the move would never end under such a throttle: that is ``infeasible``, with the violations. Others are
not held up by that: what does not fit and has no throttle yet gets none (``capacity.fits``), and minimums of the rest are met.

While a copy is broken (``copies.broken_copies``) no rate makes it end, and nobody knows the end: the deadline and the room are those of
the others, and if there are none, only minimums raise rates. Afterwards progress is watched anew. Where a follower falls behind although
its rate is above its minimum, something else holds it, and no rate is raised for the deadline. Such a raise goes no further than the
network is declared to carry, or was seen to.

Partitions of which a number stays unknown for ``stale_after_rounds`` rounds keep the others from nothing: these are paced by what is
known of them, and what the odd ones need is named as unknown.

Known to do badly: once something is copied, a rate is not lowered when traffic falls, only when it passes the network's cap. Kafka
answers a lower rate by stopping everything for seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from policies.throttle.capacity import fits, too_small
from policies.throttle.copies import RECOVERY
from policies.throttle.lists import ListSteps, ThrottledLists, difference, union
from policies.throttle.needs import Needs, capped_needs_of
from policies.throttle.pacing_round import (
    PacingExplanation,
    PacingMemory,
    PacingSnapshot,
    Round,
    ThrottleDecision,
    Trigger,
    are_in_force,
    explain,
    fallback_rates,
    highest_like,
    known_copies,
    plan_in_force,
    safe_loads,
    stretch_rates,
)
from policies.throttle.progress import UNKNOWN_END, extend_watch
from policies.throttle.rates import (
    NO_CAPS,
    BrokerRole,
    Load,
    RatePlan,
    ThrottleSettings,
    Violation,
    ceil_ratio,
    fraction_of,
    loads_of,
    per_broker_plan,
    plan_at,
    share_cluster,
    uniform_plan,
)

_MS_PER_S = 1000
SAME_RATE_RATIO = Fraction(1, 20)
"""A rate that differs by less is not written again: Kafka's limiter holds a rate no better, and every change is a write to a broker."""
LARGEST_STEP = 2
"""A raise goes at most to so many times the rate, unless the minimum needs more: Kafka lets ten seconds' worth of the difference
through at once."""
_AT_ONCE: frozenset[Trigger] = frozenset(
    {"first-throttle", "moves-joined", "throttle-lost", "minimum-rose", "under-min-isr"}
)
_AS_FAR_AS_IT_GOES: frozenset[Trigger] = frozenset({"moves-joined", "throttle-lost", "moves-left"})
"""Triggers that are decided at the rates in force where no rate is feasible: that is better than a move without a throttle."""

Step = tuple[ThrottleDecision | None, PacingMemory, PacingExplanation]


def decide(snapshot: PacingSnapshot, memory: PacingMemory, settings: ThrottleSettings) -> Step:
    """Decide one round. Raises ``BadList`` where the snapshot has a text that is no throttled replica list."""
    if snapshot.copies is None:
        return _decide_without_reports(snapshot, memory, settings, None)
    if not len(snapshot.copies):
        return _finish(memory)
    needs = capped_needs_of(snapshot.copies, disk_threads=snapshot.disk_threads)
    violations = too_small(needs, snapshot.caps)
    if violations:
        kept = fits(
            snapshot.copies,
            violations,
            added=memory.added,
            rates=memory.rates,
            headroom_ratio=settings.headroom_ratio,
        )
        if kept.any() and not kept.all():
            rest = replace(snapshot, copies=snapshot.copies.take(kept))
            decision, memory, explanation = decide(rest, memory, settings)
            return decision, memory, leave_out(explanation, snapshot.copies.take(~kept).names(), violations)
    knows_nothing = not known_copies(snapshot.copies) and (needs.lacks_minimums or not memory.is_active)
    waits = needs.lacks_minimums and memory.stale_rounds < settings.stale_after_rounds
    if knows_nothing or waits:
        return _decide_without_reports(snapshot, memory, settings, needs)
    return _decide_with_reports(Round.observe(snapshot, memory, settings, snapshot.copies, needs))


def leave_out(
    explanation: PacingExplanation, unfit: Sequence[str], violations: Sequence[Violation]
) -> PacingExplanation:
    """The explanation of the others, with the partitions that do not fit: nobody knows their end."""
    plan = explanation.plan
    return replace(
        explanation,
        plan=None if plan is None else replace(plan, feasible=False, violations=tuple(violations)),
        eta=UNKNOWN_END,
        unfit=(*unfit, *explanation.unfit),
    )


def _finish(memory: PacingMemory) -> Step:
    if not memory.is_active:
        return None, PacingMemory(), PacingExplanation(outcome="nothing-moves")
    decision = ThrottleDecision(trigger="finished", remove=memory.added, clear_rates=tuple(memory.rates))
    return decision, PacingMemory(), PacingExplanation(outcome="decided")


def _decide_with_reports(now: Round) -> Step:
    wanted, plan = _wanted_rates(now)
    trigger = next(_triggers(now, wanted), None)
    if plan.feasible is False:
        frees_leaders = trigger == "under-min-isr" and now.frees_leaders
        stretched = stretch_rates(now.memory.rates, now.lists)
        if now.memory.is_active and (frees_leaders or trigger in _AS_FAR_AS_IT_GOES):
            wanted = {role: stretched[role] for role in now.lists.roles()}
        else:
            violating = {violation.role for violation in plan.violations}
            wanted = {role: stretched[role] if role in violating else rate for role, rate in wanted.items()}
            if not now.memory.is_active or not _is_minimum_near(now, now.memory.rates, wanted):
                return (
                    None,
                    now.memory,
                    explain(now.snapshot, now.memory, now.needs, "infeasible", trigger, plan),
                )
    if trigger is None:
        return None, now.memory, explain(now.snapshot, now.memory, now.needs, "unchanged", None)
    # an entry of a replica that has caught up eats quota of those that have not
    waits = trigger not in _AT_ONCE and not (trigger == "moves-left" and now.memory.recovers)
    if waits and now.is_resting:
        return None, now.memory, explain(now.snapshot, now.memory, now.needs, "resting", trigger)
    rates = _new_rates(now, trigger, wanted)
    decision = ThrottleDecision(
        trigger=trigger,
        add=now.lists.add,
        remove=now.lists.remove,
        set_rates=rates,
        clear_rates=tuple(
            role for role in now.memory.rates if role not in rates and not now.lists.waits(role)
        ),
    )
    waiting = {role: rate for role, rate in now.memory.rates.items() if now.lists.waits(role)}
    memory = _remember(now.snapshot, now.memory, now.needs, now.lists.wanted, {**waiting, **rates})
    return decision, memory, explain(now.snapshot, memory, now.needs, "decided", trigger)


def _wanted_rates(now: Round) -> tuple[dict[BrokerRole, int], RatePlan]:
    """A rate for every broker on a list, whether it leads now or not, and what follows from these rates.

    A role whose minimum is unknown gets the highest of the rates, because it is not known what it needs.
    """
    rule = now.rule()
    uniform = now.settings.rates == "uniform"
    plan = uniform_plan(now.known_loads, rule).plan if uniform else per_broker_plan(now.known_loads, rule)
    if (
        uniform and plan.feasible is False
    ):  # the smallest cap is no reason to hold up the brokers with larger ones
        uniform, plan = False, per_broker_plan(now.known_loads, rule)
    spare = {} if uniform else per_broker_plan(safe_loads(now.memory), replace(rule, deadline_s=None)).rates
    unknown = {load.role for load in now.loads if load.min_bytes_per_s is None}
    rates = {
        role: highest_like(role, plan.rates)
        if role in unknown
        else plan.rates.get(role) or spare.get(role) or highest_like(role, plan.rates)
        for role in now.lists.roles()
    }
    shared = _share(now, rates)
    if shared != rates:
        plan = plan_at(
            {load.role: shared.get(load.role, plan.rates[load.role]) for load in now.known_loads},
            now.known_loads,
        )
    return shared, plan


def _triggers(now: Round, wanted: Mapping[BrokerRole, int]) -> Iterator[Trigger]:
    """All triggers that apply; those that cannot wait come first."""
    if not now.memory.is_active:
        yield "first-throttle"
        return
    rates = now.memory.rates
    if now.lists.is_joined or any(role not in rates for role in wanted):
        yield "moves-joined"
        return
    if _is_lost(now.snapshot):
        yield "throttle-lost"
    if _is_minimum_near(now, rates, wanted):
        yield "minimum-rose"
    lowers = now.snapshot.is_pressed and _is_changed(now, rates, wanted, up=False, down=True)
    if lowers or now.frees_leaders:
        yield "under-min-isr"
    if now.can_go_on:
        yield from _chances(now, rates, wanted)
    if _is_over_cap(now, rates, wanted):
        yield "over-cap"
    if _is_too_high(now, rates, wanted):
        yield "traffic-fell"
    if now.lists.is_left or any(role.is_disk for role in rates.keys() - set(now.lists.needing)):
        yield "moves-left"


def _chances(
    now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int]
) -> Iterator[Trigger]:
    """Triggers that make the end come sooner, as long as there is one."""
    is_whole = now.needs.is_whole  # else ``wanted`` lacks what the others will need
    if now.memory.is_fallback and is_whole and _is_changed(now, rates, wanted, up=True, down=True):
        yield "reports-back"
    is_raised = any(is_another(rates[role], wanted[role], up=True) for role in wanted)
    if is_raised and _is_late(now) and _is_sooner(now, wanted):
        yield "deadline-at-risk"
    if now.snapshot.room != NO_CAPS and _is_changed(now, rates, wanted, up=True, down=False):
        yield "headroom"


def _is_lost(snapshot: PacingSnapshot) -> bool:
    return snapshot.is_rate_lost or not snapshot.lost.is_empty


def _is_minimum_near(now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int]) -> bool:
    """Whether a minimum is near a rate that can go up; if a cap is just above the minimum, it always stays near.

    A leader that is no source has no rate: it is on no list, so nothing holds it back.
    """
    share = fraction_of(now.settings.raise_at_ratio)
    for load in now.loads:
        if load.role not in wanted:
            continue
        least, there, rate = load.min_bytes_per_s or 0, rates[load.role], wanted[load.role]
        if least > share * there and rate > there and (least >= there or is_another(there, rate, up=True)):
            return True
    return False


def _is_late(now: Round) -> bool:
    left_ms, remaining_s = now.left_ms, now.eta.remaining_s
    if left_ms is None:
        return False
    if now.snapshot.is_broken or now.eta.basis == "unknown":  # of the others only the prediction is known
        remaining_s = plan_in_force(now.memory.rates, now.known_loads).total_s
        if remaining_s is None and not now.snapshot.is_broken:
            return False
    return remaining_s is None or remaining_s * _MS_PER_S > left_ms


def _is_sooner(now: Round, wanted: Mapping[BrokerRole, int]) -> bool:
    """Whether the copies end sooner at these rates: they do not where a cap, or the cluster's limit, holds the role that is done last."""
    there_s, then_s = (plan_in_force(rates, now.known_loads).total_s for rates in (now.memory.rates, wanted))
    return there_s is None or then_s is None or then_s < float(1 - SAME_RATE_RATIO) * there_s


def _is_too_high(now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int]) -> bool:
    """Whether a lower rate would do, and holds nothing up. What was written when a broker went away says little about its return."""
    return now.snapshot.is_planned and _is_changed(now, rates, wanted, up=False, down=True)


def _is_changed(
    now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int], *, up: bool, down: bool
) -> bool:
    """Whether a rate is to go up or down by the threshold at least."""
    share = max(fraction_of(now.settings.change_threshold_ratio), SAME_RATE_RATIO)
    return any(is_another(rates[role], rate, share, up=up, down=down) for role, rate in wanted.items())


def is_another(
    there: int, rate: int, share: Fraction = SAME_RATE_RATIO, *, up: bool = False, down: bool = False
) -> bool:
    """Whether ``rate`` is above or below the one that is there by this share of it at least."""
    step = rate - there
    return (up and step > 0 and step >= share * there) or (down and step < 0 and -step >= share * there)


def _is_over_cap(now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int]) -> bool:
    """Whether a rate in force is above its broker's cap, or those of followers are above the cluster's together."""
    there = {role: rates[role] for role in wanted}
    capped = {
        role: min(rate, cap)
        for role, rate in there.items()
        if (cap := now.snapshot.caps.cap_of(role)) is not None
    }
    return _share(now, there) != there or _is_changed(now, rates, capped, up=False, down=True)


def _share(now: Round, rates: Mapping[BrokerRole, int]) -> dict[BrokerRole, int]:
    """The rates within the cluster's limit. What is not known of a role is what it needed before, and as much as another has left."""
    most = max((load.bytes_left or 0 for load in now.loads), default=0)
    loads = [
        Load(
            role=load.role,
            bytes_left=most if load.bytes_left is None else load.bytes_left,
            min_bytes_per_s=now.memory.safe_mins.get(load.role, 0)
            if load.min_bytes_per_s is None
            else load.min_bytes_per_s,
        )
        for load in now.loads
    ]
    return share_cluster(rates, loads, now.settings.cluster_bytes_per_s)


def _new_rates(now: Round, trigger: Trigger, wanted: Mapping[BrokerRole, int]) -> dict[BrokerRole, int]:
    """The new rates of a trigger, raised in steps; one that is nearly the one in force and above the minimum stays as it is."""
    rates, chosen = now.memory.rates, _chosen_rates(now, trigger, wanted)
    least = {load.role: load.min_bytes_per_s or 0 for load in now.loads}
    if now.settings.rates == "uniform":
        most = max((needed for role, needed in least.items() if not role.is_disk), default=0)
        least |= {role: most for role in chosen if not role.is_disk}
    headroom = 1 + fraction_of(now.settings.headroom_ratio)
    new = {}
    for role, rate in chosen.items():
        there, needed = rates.get(role), least.get(role, 0)
        if there is None:
            new[role] = rate
        elif there > needed and not is_another(there, rate, up=True, down=True):
            new[role] = there
        else:
            new[role] = min(rate, max(LARGEST_STEP * there, ceil_ratio(needed, headroom)))
    if _share(now, new) != new:  # rates that were to stay are above what the limit leaves them
        new = {
            role: min(rate, wanted[role]) if role.role == "follower" else rate for role, rate in new.items()
        }
    return new


def _chosen_rates(now: Round, trigger: Trigger, wanted: Mapping[BrokerRole, int]) -> dict[BrokerRole, int]:
    """The rates of a trigger. A raise lowers no rate, unless the cluster's limit asks for it; only triggers that are meant to do."""
    rates = now.memory.rates
    if trigger == "over-cap" and not now.needs.is_whole:
        return _cap_rates(now, rates, wanted)
    if trigger in {"first-throttle", "over-cap", "under-min-isr", "reports-back", "traffic-fell"}:
        return dict(wanted)
    if trigger == "moves-left":
        return {role: rates[role] for role in wanted}
    least = 0
    if now.settings.rates == "uniform":  # one rate for all, whatever rate somebody set for a single broker
        least = min((rates[role] for role in wanted if role in rates and not role.is_disk), default=0)
    return {
        role: max(rate, rates.get(role, 0), 0 if role.is_disk else least) for role, rate in wanted.items()
    }


def _cap_rates(
    now: Round, rates: Mapping[BrokerRole, int], wanted: Mapping[BrokerRole, int]
) -> dict[BrokerRole, int]:
    """The rates in force, at most the caps: it is not known what all partitions will need."""
    caps = {role: cap for role in wanted if (cap := now.snapshot.caps.cap_of(role)) is not None}
    if now.settings.rates == "uniform":
        lowest = min((cap for role, cap in caps.items() if not role.is_disk), default=0)
        caps |= {role: lowest for role in wanted if lowest and not role.is_disk}
    return {role: min(rates[role], caps.get(role, rates[role])) for role in wanted}


def _decide_without_reports(
    snapshot: PacingSnapshot, memory: PacingMemory, settings: ThrottleSettings, needs: Needs | None
) -> Step:
    """Keep the throttle, extend it to moves that join, and after some rounds fall back to the failover-safe rates."""
    if needs is not None or memory.is_active:
        memory = replace(memory, stale_rounds=memory.stale_rounds + 1)
    if not memory.is_active:
        return None, memory, PacingExplanation(outcome="unknown", needs=needs)
    explanation = PacingExplanation(outcome="stale", needs=needs)
    lists = None
    if snapshot.copies is not None:
        lists = ListSteps.from_lists(
            snapshot.lists, memory.added, snapshot.copies, lost=snapshot.lost, down=snapshot.down
        )
    rates = memory.rates
    trigger: Trigger | None = "throttle-lost" if _is_lost(snapshot) else None
    if lists is not None and (lists.is_joined or any(role not in rates for role in lists.roles())):
        trigger, rates = "moves-joined", stretch_rates(rates, lists)
    if memory.stale_rounds >= settings.stale_after_rounds and not memory.is_fallback:
        safe = fallback_rates(memory, settings, rates)
        raised = {role: max(rate, safe.get(role, 0)) for role, rate in {**safe, **rates}.items()}
        trigger = "stale-reports"
        rates = share_cluster(raised, safe_loads(memory), settings.cluster_bytes_per_s)
        memory = replace(memory, is_fallback=rates != memory.rates)
    add = ThrottledLists() if lists is None else lists.add
    is_nothing = rates == memory.rates and add == ThrottledLists() and not _is_lost(snapshot)
    if trigger is None or is_nothing:
        return None, memory, explanation
    added = union(memory.added, add)  # nothing is removed while reports are missing
    alive = {role: rate for role, rate in rates.items() if role.broker not in snapshot.down}
    decision = ThrottleDecision(trigger=trigger, add=add, set_rates=alive)
    explanation = replace(explanation, outcome="decided", wanted_trigger=trigger)
    return decision, _remember(snapshot, memory, None, added, rates), explanation


def _remember(
    snapshot: PacingSnapshot,
    memory: PacingMemory,
    needs: Needs | None,
    added: ThrottledLists,
    rates: Mapping[BrokerRole, int],
) -> PacingMemory:
    """The memory after a decision. New rates or moves change the slope, so the watch begins anew; some that end do not."""
    joined = difference(added, memory.added).follower  # the deadline counts from the newest
    is_same = are_in_force(rates, memory.rates) and not joined
    watch = memory.watch
    if not is_same:
        loads = () if needs is None else loads_of(needs)
        watch = extend_watch(memory.watch, at_ms=snapshot.now_ms, loads=loads, plan=None, is_changed=True)
    return replace(
        memory,
        begun_ms=snapshot.now_ms if memory.begun_ms is None or joined else memory.begun_ms,
        changed_ms=snapshot.now_ms,
        added=added,
        rates=dict(rates),
        is_fallback=memory.is_fallback and (needs is None or needs.lacks_minimums),
        recovers=memory.recovers
        if snapshot.copies is None
        else bool((snapshot.copies.kind == RECOVERY).any()),
        watch=watch,
        first_rate_bytes_per_s=memory.first_rate_bytes_per_s or max(rates.values(), default=0),
    )
