"""Runs a job on Spark: starts the query, describes its epochs, and stops it between epochs."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.app.job.decoding import DeadLetters
from thetastream.app.job.frames import join_streams
from thetastream.app.job.rechoosing import find_plan, rechoose_after_epochs
from thetastream.app.job.spec import ARROW, Job, find_endless_problems, write_option
from thetastream.app.job.stopping import CUT, StopRequests, catch_signals
from thetastream.core.errors import raise_problems
from thetastream.core.spans import AVAILABLE_NOW, write_delay
from thetastream.runtime.checkpoint_files import prepare_checkpoint, update_paths
from thetastream.runtime.control.newest_offset import wait_for_progress
from thetastream.runtime.control.policies import Policy, encode_policy
from thetastream.runtime.observe.epoch_lines import LONGEST_LAG_S, PAIRS_FOUND, are_second_units, read_kind
from thetastream.spark.changes import keep_groups
from thetastream.spark.end_of_input import end_input
from thetastream.spark.observe.reports import count_input, read_reports
from thetastream.spark.sinks.file_sink_log import finish_epoch

POLL_SECONDS = 0.2
"""The pause between two looks at the query."""
EpochListener = Callable[[dict[str, Any]], None]
"""A function that is called with the figures of each epoch."""


def run(
    spark: SparkSession,
    job: Job,
    say: EpochListener,
    until_caught_up: bool = False,
    seconds: float | None = None,
    finish: bool = False,
    *,
    wait_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
    measure: Callable[[StreamingQuery], None] | None = None,
) -> None:
    """Run a job until it is stopped, has caught up, has finished, or its time is over.

    SIGINT and SIGTERM let the running epoch finish, for which the job waits ``wait_s`` seconds, or as long as
    it takes. A second signal stops it at once. When the job is started again, it continues after the
    last epoch that is committed in its checkpoint. With ``finish``, or if the job asks for it, one more epoch
    decides every row when the job has caught up. ``tell`` gets what the user should know besides, and
    ``measure`` gets a query after its epochs, before Spark forgets what it has reported about them.

    Raises
    ------
    ThetastreamError
        If the job is wrong.
    StreamingQueryException
        If the query fails.
    """
    if finish or until_caught_up:
        raise_problems([*find_endless_problems(job.sources, "--finish" if finish else "--until-caught-up")])
    finish = finish or job.is_finished
    until_caught_up = until_caught_up or finish or job.ends_when_caught_up
    # Each look at the query reads all reports that Spark keeps. After a short pause, the last few are enough.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "20")
    with catch_signals(seconds, wait_s) as stop:
        results = join_streams(spark, job)
        plan = find_plan(results, job.rechoosing)
        by_arrow = [str(source.path) for source in job.sources if source.reader == ARROW]
        # Arrow does not open each URI that Spark opens. Then Spark reports wrong paths and unfinished epochs.
        with suppress(OSError, pa.ArrowException):
            prepare_checkpoint(job.checkpoint)
            update_paths(job.checkpoint)
            if job.sink.path is not None:
                finish_epoch(results, job.checkpoint, job.sink.path)
        stop.begin()
        # With ``finish``, the query starts a second time, for the epoch after the end of the input.
        while True:
            query = _start(results, job, until_caught_up)
            report = say if job.policy is None else _follow_after_first(say, query, job.policy)
            if plan is not None and job.rechoosing is not None:
                report = rechoose_after_epochs(report, query, plan, job.rechoosing, tell)
            dead_letters = DeadLetters()
            try:
                dead_letters.start(spark, job, until_caught_up)
                has_ended = _watch(query, dead_letters, report, stop, tell, measure, by_arrow=by_arrow)
                dead_letters.finish(until_caught_up)
                last = dead_letters.count_new()
                if any(last.values()):
                    say(last)
                if measure is not None:
                    measure(query)
            finally:
                query.stop()
                dead_letters.stop()
            if not (finish and has_ended and end_input(job.checkpoint)):
                return


def _follow_after_first(say: EpochListener, query: StreamingQuery, policy: Policy) -> EpochListener:
    """Ask for a policy of each join after the first epoch, which says where the control folders are.

    A join that has followed this policy before follows it from the beginning.
    """
    is_asked = False

    def report(epoch: dict[str, Any]) -> None:
        nonlocal is_asked
        say(epoch)
        if is_asked:
            return
        is_asked = True
        for offset in wait_for_progress(query):
            if "control" in offset:
                handle = th.control(query, offset["control"]["join"])
                if handle.plan.policy != encode_policy(policy):
                    handle.follow(policy)

    return report


def _start(results: DataFrame, job: Job, until_caught_up: bool) -> StreamingQuery:
    """Start the query that writes results into the sink of a job."""
    if job.sink.kept is not None:
        trigger = AVAILABLE_NOW if until_caught_up else job.trigger
        return job.sink.kept.start(results, job.checkpoint, trigger, job.name)
    results = results if job.sink.mode == "update" else keep_groups(results)
    writer = results.writeStream.format(job.sink.format).outputMode(job.sink.mode)
    for key, value in job.sink.options.items():
        writer = writer.option(key, write_option(value))
    if job.sink.path is not None:
        writer = writer.option("path", job.sink.path)
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    elif job.trigger is not None:
        writer = writer.trigger(processingTime=write_delay(job.trigger))
    if job.name is not None:
        writer = writer.queryName(job.name)
    return writer.option("checkpointLocation", job.checkpoint).start()


def _watch(
    query: StreamingQuery,
    dead_letters: DeadLetters,
    say: EpochListener,
    stop: StopRequests,
    tell: Callable[[str], None],
    measure: Callable[[StreamingQuery], None] | None = None,
    *,
    by_arrow: Collection[str] = (),
) -> bool:
    """Report epochs until the query ends. If it has to stop, stop it after an epoch, or at once.

    ``by_arrow`` has the paths of the sources whose files Arrow reads.

    Returns
    -------
    bool
        Whether the query has ended by itself.
    """
    seen = -1
    last_before_stop: int | None = None
    while True:
        is_active = query.isActive
        last = query.lastProgress
        if last is not None and (last.batchId > seen or not is_active):
            for epoch in read_epochs(query, seen, by_arrow):
                seen = epoch["epoch"]
                say(epoch | dead_letters.count_new())
            if measure is not None:
                measure(query)
        if not is_active:
            query.awaitTermination()  # This raises the exception of a failed query.
            return True
        runs_epoch = query.status["isTriggerActive"]
        if last_before_stop is None and stop.must_stop():
            last_before_stop = seen
            if stop.n_signals and runs_epoch:
                tell(stop.describe_wait())
        # The query is stopped when the running epoch has ended. The next epoch may have begun by then. If so,
        # the next run repeats it.
        has_ended = last_before_stop is not None and (seen > last_before_stop or not runs_epoch)
        if has_ended or (last_before_stop is not None and stop.must_stop_now()):
            query.stop()
            for epoch in read_epochs(query, seen, by_arrow):
                say(epoch)
            if not has_ended:
                tell(CUT)
            return False
        time.sleep(POLL_SECONDS)


def read_epochs(query: StreamingQuery, seen: int, by_arrow: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Read the epochs after number ``seen`` from Spark's progress and from the counters of the joins.

    ``by_arrow`` has the paths of the sources whose files Arrow reads. An epoch has their ``files`` then.
    """
    counters: dict[int, dict[str, Any]] = {}
    for epoch in th.metrics(query):
        sums = counters.setdefault(epoch["epoch"], {})
        # The second units of a join receive candidates that its first units have counted as matches.
        for name in (
            ("late", "state_bytes") if are_second_units(epoch) else ("matched", "late", "shed", "state_bytes")
        ):
            sums[name] = sums.get(name, 0) + epoch[name]
        kind = read_kind(epoch)
        if kind is not None:
            sums["kinds"] = list(dict.fromkeys([*sums.get("kinds", ()), kind]))
    for report in read_reports(query):
        epoch, spent_ms = report["batchId"], report["durationMs"].get("triggerExecution")
        if epoch <= seen or not spent_ms:
            continue
        seen, event_time = epoch, report.get("eventTime") or {}
        tuples, files = count_input(report, by_arrow)
        yield {
            "epoch": epoch,
            "tuples": tuples,
            **({"files": files} if by_arrow else {}),
            "tuples_per_s": round(1000 * tuples / spent_ms),
            "seconds": spent_ms / 1000,
            "watermark": event_time.get("watermark"),
            "lag_s": _measure_lag_s(report["timestamp"], event_time.get("max")),
            **counters.get(epoch, {}),
        }


def _measure_lag_s(began: str, latest: str | None) -> float | None:
    """Compute how far the latest event time of an epoch was behind the clock when the epoch began."""
    if latest is None:
        return None
    behind = datetime.fromisoformat(began) - datetime.fromisoformat(latest)
    return round(max(0.0, behind.total_seconds()), 3)


def describe_epoch(epoch: dict[str, Any]) -> str:
    """Describe one epoch in one line.

    >>> figures = {"epoch": 3, "tuples": 1200, "tuples_per_s": 600, "seconds": 2.0, "watermark": None}
    >>> describe_epoch({**figures, "late": 1})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1 late'

    The counter of joins that are not inner is that of the pairs that were found, which are not the results.

    >>> describe_epoch({**figures, "matched": 1660, "kinds": ["anti"]})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1,660 pairs found'

    Dead letters that are found after the last epoch have a line of their own.

    >>> describe_epoch({"dead_letters": 2})
    '2 dead letters'
    """
    dead = f"{epoch['dead_letters']:,} dead letters" if epoch.get("dead_letters") else ""
    if "epoch" not in epoch:
        return dead
    seconds = f"{epoch['seconds']:.1f}"
    line = f"epoch {epoch['epoch']}: {_describe_input(epoch, seconds)}"
    lag = epoch.get("lag_s")
    if lag is not None and lag < LONGEST_LAG_S:
        line += f", {lag:,.1f} s behind"
    if "matched" in epoch:
        line += f", {_describe_matched(epoch)}"
    if "state_bytes" in epoch:
        line += f", state {epoch['state_bytes'] / 1e6:.1f} MB"
    if epoch.get("late"):
        line += f", {epoch['late']:,} late"
    return f"{line}, {dead}" if dead else line


def _describe_input(figures: Mapping[str, Any], seconds: str) -> str:
    """Describe the tuples that Spark has counted, the files that Arrow has read, and the rate of the tuples.

    >>> _describe_input({"tuples": 1200, "files": 3, "tuples_per_s": 600}, "2.0")
    '1,200 tuples and 3 files in 2.0 s (600/s)'
    >>> _describe_input({"tuples": 0, "files": 3, "tuples_per_s": 0}, "2.0")
    '3 files in 2.0 s'
    """
    files = [f"{figures['files']:,} files"] if "files" in figures else []
    if files and not figures["tuples"]:
        return f"{files[0]} in {seconds} s"
    counted = " and ".join([f"{figures['tuples']:,} tuples", *files])
    return f"{counted} in {seconds} s ({figures['tuples_per_s']:,}/s)"


def _describe_matched(figures: Mapping[str, Any]) -> str:
    name = PAIRS_FOUND if figures.get("kinds") else "matches"
    return f"{figures['matched']:,} {name}"


class Totals:
    """What the epochs of one run sum up to."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {"epochs": 0, "tuples": 0, "seconds": 0.0}
        self._kinds: dict[str, None] = {}

    def add(self, epoch: Mapping[str, Any]) -> None:
        """Add an epoch, or the dead letters that are found after the last one."""
        self._sums["epochs"] += "epoch" in epoch
        for name in ("tuples", "files", "seconds", "matched", "late", "shed", "dead_letters"):
            if name in epoch:
                self._sums[name] = self._sums.get(name, 0) + epoch[name]
        self._kinds |= dict.fromkeys(epoch.get("kinds", ()))

    def as_dict(self) -> dict[str, float]:
        """Return the sums by name, and tuples for each second of the epochs."""
        tuples, seconds = self._sums["tuples"], self._sums["seconds"]
        return self._sums | {"seconds": round(seconds, 3), "tuples_per_s": round(tuples / (seconds or 1))}

    def describe(self) -> str:
        """Describe the sums in one line.

        >>> totals = Totals()
        >>> for number in range(2):
        ...     totals.add({"epoch": number, "tuples": 1200, "seconds": 2.0, "matched": 5, "late": number})
        >>> totals.describe()
        'total: 2 epochs, 2,400 tuples in 4.0 s (600/s), 10 matches, 1 late'
        """
        sums = self.as_dict()
        seconds = f"{sums['seconds']:,.1f}"
        line = f"total: {sums['epochs']:,} epochs, {_describe_input(sums, seconds)}"
        if "matched" in sums:
            line += f", {_describe_matched({**sums, 'kinds': [*self._kinds]})}"
        for name, words in (("late", "late"), ("shed", "shed"), ("dead_letters", "dead letters")):
            if sums.get(name):
                line += f", {sums[name]:,} {words}"
        return line
