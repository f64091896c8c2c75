"""Reads ``FOR SYSTEM_TIME AS OF``, a join with the version of a row that held at a time, as an as-of join.

    r JOIN s FOR SYSTEM_TIME AS OF r.t AS v ON r.k = v.k
    r ASOF JOIN s AS v ON r.k = v.k AND r.t >= v.t         where t is the event time of s

It is Flink's temporal join. A row of ``s`` is a version of its key, which holds from its event time on.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from thetastream.core.how import AsOf
from thetastream.frontend.streams import find_time_column
from thetastream.plan.domains import quote
from thetastream.predicate import Phrase, make_error_at, tokenize
from thetastream.predicate.tokens import Token
from thetastream.sql.statement import Select, Source

_KEEPS_UNMATCHED = {"inner": False, "left": True}


def cut_version(text: str, phrase: Phrase) -> tuple[Phrase, Phrase]:
    """Cut ``FOR SYSTEM_TIME AS OF time`` out of an input of FROM; the second part is the time.

    >>> named, time = cut_version("", tokenize("s FOR SYSTEM_TIME AS OF r.t AS v"))
    >>> [token.text for token in named], time.text
    (['s', 'AS', 'v'], 'r.t')
    """
    words = [token.keyword if token.kind not in ("FIELD", "IDENTIFIER") else "" for token in phrase.tokens]
    for n in phrase.top[1:]:
        if words[n : n + 4] == ["FOR", "SYSTEM_TIME", "AS", "OF"] and n + 4 < len(words):
            time, alias = phrase.slice(n + 4), phrase.slice(0, 0)
            has_word = words[-2] == "AS" or (
                phrase.tokens[-2].kind == "FIELD" and phrase.tokens[-1].kind == "VAR"
            )
            if has_word:
                end = -2 if words[-2] == "AS" else -1
                time, alias = phrase.slice(n + 4, end), phrase.slice(end)
            return Phrase(phrase.source, (*phrase.tokens[:n], *alias.tokens)), time
        if words[n] in ("VERSION", "TIMESTAMP") and words[n + 1 : n + 3] == ["AS", "OF"]:
            what = "a version of a table is given as a DataFrame: streams={name: spark.read...}"
            raise make_error_at(text, phrase.tokens[n].start, what, "UNSUPPORTED_SQL")
    return phrase, phrase.slice(0, 0)


def read_version(text: str, join: Token, kind: str, source: Source, version: Phrase) -> Source:
    """Read a join with a version. Its event time is not known yet."""
    if join.keyword != "JOIN" or kind not in _KEEPS_UNMATCHED or source.on is None:
        what = "FOR SYSTEM_TIME stands in [LEFT] JOIN stream FOR SYSTEM_TIME AS OF time AS name ON condition"
        raise make_error_at(text, version.tokens[0].start, what, "UNSUPPORTED_SQL")
    return replace(source, how=AsOf(1, version.text, _KEEPS_UNMATCHED[kind]), version=version)


def resolve_versions(select: Select, frames: Mapping[str, DataFrame], event_time: Any) -> Select:
    """Write every FOR SYSTEM_TIME AS OF as an as-of join by the event time of its source."""
    sources = tuple(_resolve(select, source, frames, event_time) for source in select.sources)
    new = [
        mine.match
        for mine, given in zip(sources, select.sources, strict=True)
        if mine.match is not None and given.match is None
    ]
    return replace(select, sources=sources, conditions=(*select.conditions, *new)) if new else select


def _resolve(select: Select, source: Source, frames: Mapping[str, DataFrame], event_time: Any) -> Source:
    if source.version is None or not isinstance(source.how, AsOf):
        return source
    frame, alias = frames[source.alias], source.alias
    asked = event_time.get(alias) if isinstance(event_time, Mapping) else event_time
    column = find_time_column(frame, asked)
    start = source.version.tokens[0].start
    if any(other.isStreaming for other in frames.values()) and not frame.isStreaming:
        what = (
            f"{alias!r} is a table, which has one version; write JOIN ... AS {alias} ON ... without the time"
        )
        raise make_error_at(select.text, start, what, "UNSUPPORTED_SQL")
    if column is None:
        raise make_error_at(
            select.text,
            start,
            f"FOR SYSTEM_TIME AS OF needs the event time of {alias!r}, from which on a version holds; call "
            f'.withWatermark("column", "delay") on it; of a batch, give event_time={{"{alias}": "column"}}',
            "NO_WATERMARK",
        )
    time, began = source.version.text, f"{quote(alias)}.{quote(column)}"
    written = f"{time} >= {alias}.{column}"
    how = replace(source.how, by=f"({time}) - ({began})", written=written)
    return replace(source, how=how, match=tokenize(f"({time}) >= {began}"), version=None)
