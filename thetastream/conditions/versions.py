"""Reads ``FOR SYSTEM_TIME AS OF``, a join with the version of a row that held at a time, as an as-of join.

    r JOIN s FOR SYSTEM_TIME AS OF r.t AS v ON r.k = v.k
    r ASOF JOIN s AS v ON r.k = v.k AND r.t >= v.t         where t is the event time of s

It is Flink's temporal join. A row of ``s`` is a version of its key, which holds from its event time on.
"""

from dataclasses import replace

from thetastream.conditions.statement import Source
from thetastream.conditions.tokens import Phrase, Token, make_error_at
from thetastream.core.how import AsOf

_KEEPS_UNMATCHED = {"inner": False, "left": True}


def cut_version(text: str, phrase: Phrase) -> tuple[Phrase, Phrase]:
    """Cut ``FOR SYSTEM_TIME AS OF time`` out of an input of FROM; the second part is the time.

    >>> from thetastream.conditions import tokenize
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
