"""Finds the stream that each condition of ``th.Snapshots(punctuation=)`` is about."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.core.errors import QueryError, raise_problems
from thetastream.joins.ask.refusals import summarize, unlogged
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.joined import Joined, UnitsJoin
from thetastream.joins.plan import Built
from thetastream.lowering.domains import quote
from thetastream.runtime.punctuations import Punctuations


def mark_punctuations(built: Built | None, marks: Sequence[str]) -> tuple[Built, str]:
    """Return how the same rows are built if some rows of the streams are punctuations.

    The second value is the folder in which routers write punctuations down.

    Parameters
    ----------
    built : Built or None
        How the rows are built from a join; None if this is not known.
    marks : sequence of str
        The conditions, each over one stream.

    Raises
    ------
    QueryError
        BAD_VALUE if there is no single stream for a condition, or MAILBOX if there is no folder that all
        units share.
    """
    join: Joined | None = None if built is None else built.join
    if built is None or not isinstance(join, UnitsJoin):
        what = "punctuation needs a join of streams by one model, as th.join or a statement returns it"
        raise QueryError("BAD_VALUE", f"{what}: select columns by select=, and leave later operators out")
    frames = {stream.alias: given.dataframe() for stream, given in zip(join.inputs, join.given, strict=True)}
    times = {stream.alias: stream.event_time for stream in join.inputs}
    found: dict[str, tuple[str, str]] = {}
    for mark in marks:
        alias = _find_alias(mark, frames)
        time = times[alias]
        if alias in found:
            what = f"stream {alias!r} has two conditions for punctuations, and {mark!r} is one of them"
            raise QueryError("BAD_VALUE", f"{what}; connect them with OR")
        if time is None:
            what = f"stream {alias!r} has punctuations, and their event time names a snapshot"
            raise QueryError("BAD_VALUE", f"{what}: give the stream a watermark, or name event_time=")
        found[alias] = mark, f"{alias}.{quote(time)}"
    spark = next(iter(frames.values())).sparkSession
    root, problems = SparkSessionChecks(spark).choose_mailbox_folder(join.planned.run.mailbox or None)
    raise_problems(problems)
    return replace(built, join=replace(join, punctuations=Punctuations(root, found))), root


def _find_alias(mark: str, frames: dict[str, DataFrame]) -> str:
    """Find the stream over whose columns alone a condition can be computed."""
    fitting, why = [], None
    for alias, frame in frames.items():
        one = frame.select(F.struct(*(F.col(quote(name)) for name in frame.columns)).alias(alias))
        try:
            with unlogged():
                _ = one.where(F.expr(mark)).schema
            fitting.append(alias)
        except AnalysisException as error:
            if why is None or f"{alias}." in mark:
                why = summarize(error)
    if len(fitting) == 1:
        return fitting[0]
    what = f"punctuation ({mark!r}) must be a condition over the columns of one stream ({', '.join(frames)})"
    raise QueryError("BAD_VALUE", what if why is None or fitting else f"{what}: {why.message}")
