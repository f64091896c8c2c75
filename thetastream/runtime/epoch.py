"""Runs a unit's epoch inside Spark, for any engine.

Spark's state store is the only recovery log. The manifest and the segments are written within the epoch and
committed with it, so a Spark task that is retried, speculative or restarted begins from the last commit.
"""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import StateError
from thetastream.core.identity import Identity, digest, fix_choices
from thetastream.core.shed import LAG
from thetastream.engine.clock import END_US, Clock, EarlyWatermark, Latest, merge_latest
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Peers
from thetastream.engine.protocol import Engine, EngineSpec, OpenStore
from thetastream.lowering.identity import MODEL
from thetastream.runtime.choice import FittedSpec, RunningSpec
from thetastream.runtime.control.access import ControlAccess
from thetastream.runtime.control.notices import (
    ENDS,
    JOINS,
    LEAVES,
    Member,
    Notice,
    describe_peers,
    describe_self,
)
from thetastream.runtime.control.plan import ControlPlan, decode_model
from thetastream.runtime.emit import Emitter, count_emitted, time_work
from thetastream.runtime.flow import RunContext
from thetastream.runtime.inbox_rows import ControlRows, list_rows, take_in
from thetastream.runtime.late_files import LateFiles
from thetastream.runtime.mailbox.announcement import check_messages, find_mailbox_name
from thetastream.runtime.mailbox.files import Mailbox
from thetastream.runtime.mailbox.outbox import post
from thetastream.runtime.punctuations import Punctuations
from thetastream.runtime.shed_loads import ShedLoads
from thetastream.runtime.state.durable_store import DurableStore, PartMap
from thetastream.runtime.state.manifest import NOTHING, LastEpoch, Manifest, decode
from thetastream.runtime.state.segment_cache import choose_cache_root, sweep
from thetastream.runtime.task_facts import ReadTask, TaskFacts, number_epoch

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Coordination:
    """What routers and units of a query agree on while it runs; it is pickled and sent to the workers."""

    shed: ShedLoads | None = None
    """The load shedder; None if no tuples are dropped."""
    control: ControlAccess | None = None
    """The control of the join; None if its units do not change."""
    early: EarlyWatermark | None = None
    """The watermark before 1970; None if no tuple waits for it."""
    punctuations: Punctuations | None = None
    """Which rows of the streams are punctuations; None if there are none."""


NO_COORDINATION = Coordination()


@dataclass(frozen=True)
class UnitEpoch:
    """All that a Spark worker needs to run an epoch of a unit; it is pickled and sent to the workers."""

    fitted: FittedSpec
    identity: Identity
    """The identity of the query, as it was planned."""
    emitter: Emitter
    run_context: RunContext
    read_task: ReadTask
    """Reads the facts of the Spark task in which the unit runs."""
    late: LateFiles | None = None
    """Where late tuples are kept; None if they are not."""
    delays_us: Mapping[str, int] = field(default_factory=dict)
    """The delay of the watermark of each stream that has one, by alias."""
    coordination: Coordination = NO_COORDINATION

    def run(
        self,
        key: int,
        rows: "Iterator[pd.DataFrame] | None",
        timers: Any,
        value: Any,
        parts: PartMap,
        handle: Any,
    ) -> "Iterator[pd.DataFrame]":
        """Run one epoch of one unit; yield its results, and then a row of counters.

        Parameters
        ----------
        key : int
            The grouping key that stands for the unit.
        rows, timers
            The arguments that Spark gives a stateful processor. There are no rows if Spark calls the unit
            only because the watermark has moved.
        value : ValueState
            The manifest that the previous epoch committed.
        parts : MapState
            The segments that the previous epoch committed.
        handle : StatefulProcessorHandle
            Spark's handle, with which the unit sets its timer.

        Raises
        ------
        StateError
            If the checkpoint is damaged, has another format, or belongs to another query.
        """
        freeze_objects()
        task = self.read_task()
        running = self.fitted.fit(task.partitions)
        spec, keys, _ = running
        if key not in keys:
            return  # The mailbox announces itself to more units than this query has.
        slot = keys.index(key)
        query = self._identify(running)
        # 1. Read the state that the previous epoch committed, and the rows of this epoch.
        found = value.get() if value.exists() else None
        inbox = Inbox()
        told = take_in(inbox, list_rows(rows or iter(())))
        before = decode(None if found is None else found[0], query, spec.state_type, told.forked_from)
        clock = self._read_clock(task, spec, timers, before.heard, has_rows=rows is not None)
        if before.heard.epoch == clock.epoch:
            if rows is None:
                return  # The unit has already run for the rows of this epoch.
            raise StateError("EPOCH_REPEATED", f"epoch {clock.epoch} brings rows to unit {key} a second time")
        check_messages(before, clock.epoch, slot, told.announced, self.run_context.mailbox)
        event = None if told.notice is None else told.notice.event
        # 2. Run the engine.
        member, state = _follow(spec, told.notice, before, clock)
        control = self.coordination.control
        held_plan = before.held_plan.hear(told.next_plan, clock.epoch)
        if control is not None:
            followed, plan = set(told.followed), None
            if spec.has_messages:
                plan = control.find_plan(task)
                followed.add(0 if plan is None else plan.version)
            before.held_plan.check(followed, clock.epoch, hide_secrets(control.root))
            inbox.peers = _find_peers(spec, plan, member, slot, told.notice)
        root = choose_cache_root(self.run_context.cache_folder)
        sweep(root)
        engine = _open(spec, member, slot, state, lambda plans: DurableStore(parts, plans, root))
        if self.late is not None:
            engine.counters.keep_late()
        latest_us = self._find_latest(before.heard, told, clock)
        pieces = time_work(
            engine.epoch(inbox, self._begin_early(before.heard, latest_us, clock)), engine.counters
        )
        yield from self.emitter.gather_results(count_emitted(pieces, engine.counters))
        _refuse_later(clock, engine.counters)
        if control is not None and told.asks_load:
            control.report_load(task, slot, engine.counters.mlv_bytes, engine.counters.busy_ms)
        self._report(task, slot, engine.counters, inbox, clock, timers)
        # 3. Send messages. A unit that joins keeps the name of the mailbox, and sends nothing yet.
        mailbox, sent = before.mailbox, 0
        if spec.has_messages:
            mailbox = find_mailbox_name(before.mailbox, told.announced)
        if mailbox is not None and event != JOINS:
            has_news = engine.is_waiting or event == LEAVES
            box = Mailbox(self.run_context.mailbox, mailbox)
            if before.heard != NOTHING:
                box.withdraw(slot, range(before.heard.epoch + 1, clock.epoch))
            sent = post(box, query, clock.epoch, slot, engine.messages, has_news, keys)
            engine.counters.count_sent(sent)
        # 4. Keep the state. The timer makes Spark call the unit when the watermark moves, even without rows.
        if event == ENDS:
            value.update((Manifest(NOTHING, None, spec.state_type(), held_plan=held_plan).encode(query),))
            if spec.has_event_time:
                handle.deleteTimer(_when_called(before.heard))
        else:
            heard = LastEpoch(clock.epoch, clock.watermark_us, latest_us)
            member = member.remember(clock.epoch, engine.counters)
            kept = Manifest(heard, mailbox, engine.state, member, sent > 0, held_plan)
            value.update((kept.encode(query),))
            if spec.has_event_time:
                _renew_timer(handle, before.heard, clock, has_fired=rows is None)
        drained = member.find_drained(clock.epoch, clock.watermark_us, engine.counters.is_empty)
        if control is not None and drained is not None:
            control.mark_drained(task, slot, drained, member.arrived)
        engine.counters.tell_delays(self.delays_us)
        yield self.emitter.frame_counters(slot, engine.counters)

    def _read_clock(
        self, task: TaskFacts, spec: EngineSpec, timers: Any, before: LastEpoch, *, has_rows: bool
    ) -> Clock:
        """Read the number of the epoch, and the watermarks of the previous epoch and of this one."""
        watermark_us = _watermark_us(timers)
        number = number_epoch(
            task,
            timers.getCurrentProcessingTimeInMs(),
            before,
            watermark_us,
            has_rows=has_rows,
            has_messages=spec.has_messages,
        )
        if self.coordination.control is not None and spec.has_messages and number != task.epoch:
            # Units that join would number their epochs otherwise.
            raise StateError(
                "EPOCH_UNKNOWN",
                "this checkpoint numbers epochs by times, because the query has written inside foreachBatch "
                "on Spark Connect, and a join with max_units needs Spark's numbers; leave max_units out, or "
                "begin with a new checkpointLocation",
            )
        # Nodes of several streams decide nothing. They would take the last epoch for that of a batch.
        has_ended = _has_ended(watermark_us) and not spec.has_messages
        return Clock(number, before.watermark_us, watermark_us, is_last=has_ended)

    def _find_latest(self, before: LastEpoch, told: ControlRows, clock: Clock) -> Latest:
        """Return the latest event times that routers have found, if Spark has no watermark yet."""
        early = self.coordination.early
        if early is None or clock.watermark_us is not None:
            return ()
        now = [told.latest_us.get(stream) for stream in range(len(early.columns))]
        return merge_latest(before.latest_us, now)

    def _begin_early(self, before: LastEpoch, latest_us: Latest, clock: Clock) -> Clock:
        """Return the clock with watermarks before 1970, where Spark has none."""
        early = self.coordination.early
        if early is None:
            return clock
        late_us, watermark_us = clock.late_us, clock.watermark_us
        if late_us is None and before.latest_us:
            late_us = early.compute(before.latest_us)
        if watermark_us is None and latest_us:
            watermark_us = early.compute(latest_us)
        return clock._replace(late_us=late_us, watermark_us=watermark_us)

    def _report(
        self, task: TaskFacts, slot: int, counters: Counters, inbox: Inbox, clock: Clock, timers: Any
    ) -> None:
        """Write what others read of this epoch: late tuples, streams that may be idle, and the load."""
        if self.late is not None:
            self.late.write(task.query, clock.epoch, slot, counters.late_tuples or ())
        idle = self.run_context.idle
        if idle is not None:
            name = digest(self.identity)
            idle.write(task.query, name, slot, clock.watermark_us, counters.streams)
        shed = self.coordination.shed
        if shed is not None:
            self._publish_load(shed, task, slot, counters, inbox, timers)

    def _publish_load(
        self, shed: ShedLoads, task: TaskFacts, slot: int, counters: Counters, inbox: Inbox, timers: Any
    ) -> None:
        """Count what routers dropped, and publish the load of the unit for the routers of later epochs."""
        for report in inbox.shed:
            alias = shed.shedding.sides[report.stream].alias
            counters.count_shed(alias, report.shed, report.shed_probes)
        began_ms = timers.getCurrentProcessingTimeInMs()
        if shed.shedding.shed.load == LAG and (began_ms is None or began_ms < 0):
            what = 'Spark does not tell when the epoch began, and a shedder with load="lag" needs it'
            raise StateError("EPOCH_UNKNOWN", f'{what}; use load="state"')
        load = shed.shedding.measure_load(counters.mlv_bytes, inbox.shed, (began_ms or 0) * 1000)
        shed.publish(task, slot, load, inbox.shed)

    def _identify(self, running: RunningSpec) -> Identity:
        """Return the identity of the running query, whose model was chosen for its own partitions."""
        model = running.model
        return fix_choices(self.identity if model is None else {**self.identity, MODEL: model})


def _follow(spec: EngineSpec, notice: Notice | None, before: Manifest, clock: Clock) -> tuple[Member, Any]:
    """Return the membership and the state with which the unit begins the epoch.

    A unit that joins begins with an empty state, unless it keeps the tuples of an older generation.
    """
    if notice is None or notice.event == ENDS:
        return before.member, before.state
    begins_anew = notice.event == JOINS and not notice.keeps
    state = spec.state_type() if begins_anew else before.state
    return before.member.hear(notice, clock.epoch), state


def _open(spec: EngineSpec, member: Member, slot: int, state: Any, open_store: OpenStore) -> Engine:
    """Open the engine of the unit, in the generation of the control plan that it is a member of."""
    if member.model is None:
        return spec.open(slot, state, open_store)
    return spec.with_model(decode_model(member.model)).open(member.unit, state, open_store)


def _find_peers(
    spec: EngineSpec, plan: ControlPlan | None, member: Member, slot: int, notice: Notice | None
) -> Peers:
    """Find the other units of a controlled join.

    ``plan`` is that of the epoch; None before the first change.
    """
    if not spec.has_messages:
        return describe_self(member, slot, notice)
    return describe_peers(plan or ControlPlan.begin(spec.router.model), member, slot, notice)


def _watermark_us(timers: Any) -> int | None:
    """Read Spark's watermark of this epoch in microseconds; 0 or -1 ms mean that there is none yet."""
    watermark_ms = timers.getCurrentWatermarkInMs()
    return None if watermark_ms is None or watermark_ms <= 0 else int(watermark_ms) * 1000


def _has_ended(watermark_us: int | None) -> bool:
    """Whether a watermark says that the input of the query has ended."""
    return watermark_us is not None and watermark_us >= END_US


def _refuse_later(clock: Clock, counters: Counters) -> None:
    """Refuse tuples that come after the end of the input.

    Raises
    ------
    StateError
        INPUT_ENDED.
    """
    if not _has_ended(clock.late_us):
        return
    later = {alias: one.timely + one.late for alias, one in counters.streams.items()}
    found = [f"{n} of {alias}" for alias, n in later.items() if n]
    if found:
        what = "the input of this query has ended (finish), so every row is decided; more rows have come: "
        hint = "begin with a new checkpointLocation to join them too"
        raise StateError("INPUT_ENDED", f"{what}{', '.join(found)}; {hint}")


def _renew_timer(handle: Any, before: LastEpoch, clock: Clock, has_fired: bool) -> None:
    """Set the unit's timer to one millisecond after the watermark, in place of its previous timer.

    Spark fires an event-time timer when the watermark reaches it (``<=``, as of version 4.3), and deletes it
    after the call.
    """
    before_ms, now_ms = _when_called(before), _when_called(LastEpoch(clock.epoch, clock.watermark_us))
    if before == NOTHING:
        handle.registerTimer(now_ms)
    elif before_ms != now_ms:
        if not has_fired:
            handle.deleteTimer(before_ms)
        handle.registerTimer(now_ms)


def _when_called(heard: LastEpoch) -> int:
    """Return the time of the timer that a unit set in an epoch, in milliseconds."""
    return (heard.watermark_us or 0) // 1000 + 1


@cache
def freeze_objects() -> None:
    """Freeze all objects that exist now; every Spark task calls this, and only the first call acts.

    After every Spark task, a worker of PySpark's own daemon runs ``gc.collect()``, which visits every object
    that NumPy, pandas, Arrow and Numba created on import. This takes 0.1 to 0.2 s, more than a small epoch.
    The collector does not visit frozen objects.
    """
    gc.collect()
    gc.freeze()
