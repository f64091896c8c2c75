"""Checks a job file: first what the file alone shows, then what only Spark can find.

    1. without Spark   keys, values, paths, grammar, names against declared columns, event times, sink mode
    2. with Spark      types, functions, and names of columns that the file does not declare

Spark is asked only if it can find something that the first step cannot. It cannot if all expressions of the
statement are plain. An expression is plain if it has only columns of declared types, literals, operators and
a few functions, and if each comparison and each item has values of one class: numbers, texts or times.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetastream.app.job.document import SQL, Document, examine, read_toml
from thetastream.app.job.frames import find_spark_problems
from thetastream.app.job.names import Scope, find_output, find_source_columns
from thetastream.app.job.schemas import Columns
from thetastream.conditions import Phrase, split_comparisons, split_conjuncts
from thetastream.conditions.statement import Select, Statement
from thetastream.core.errors import QueryError, ThetastreamError

OpenSession = Callable[[dict[str, Any]], AbstractContextManager[Any]]
"""A function that opens a Spark session with these settings."""
_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "DOUBLE"), "number"),
    **dict.fromkeys(("BYTE", "SHORT", "REAL"), "number"),
    "STRING": "text",
    "TIMESTAMP": "time",
    "TIMESTAMP_NTZ": "time",
}
"""The class of each SQL type. Other types belong to no class."""
_ANY = {"COUNT"}
"""Functions whose argument may be of any class and whose value is a number."""
_NUMERIC = {"SUM", "AVG", "ABS"}
"""Functions whose argument and value are numbers."""
_SAME = {"MIN", "MAX"}
"""Functions whose value has the class of the argument."""
_KINDS = {
    *("VAR", "FIELD", "IDENTIFIER", "DOT", "NUMBER", "STRING", "L_PAREN", "R_PAREN", "COMMA", "STAR"),
    *("PLUS", "DASH", "SLASH", "EQ", "NEQ", "LT", "LTE", "GT", "GTE"),
    *("AND", "BETWEEN", "COUNT", "MIN", "MAX"),
}


@dataclass(frozen=True)
class Finding:
    """One error of a job file, and its place."""

    file: str
    line: int
    column: int | None
    """The column in the line, which counts from 1. None if the error is not in a statement."""
    section: str
    """The table of the file, "sql", or "" for the top of the file."""
    condition: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")
        return f"{place}: [{self.condition}] {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as one JSON object."""
        return dict(vars(self))


def check_job(path: Path, open_session: OpenSession, say: Callable[[Finding], None]) -> int:
    """Report each error of a job file as soon as it is found; return the number of errors.

    Parameters
    ----------
    path : Path
    open_session : OpenSession
        A function that opens a Spark session. It is called only if Spark is needed.
    say : callable
        A function that is called with each Finding.
    """
    try:
        found = read_toml(path)
    except QueryError as problem:
        say(
            Finding(str(path), _find_toml_line(problem.message), None, "", problem.condition, problem.message)
        )
        return 1
    text, document = path.read_text(), examine(found, path.parent.absolute())
    findings = [
        _place(path, text, section, problem)
        for section, problems in document.problems.items()
        for problem in problems
    ]
    for finding in findings:
        say(finding)
    for finding in _ask_spark(path, text, document, found, open_session):
        known = {(other.line, other.column) for other in findings if other.column is not None}
        if finding not in findings and (finding.line, finding.column) not in known:
            findings.append(finding)
            say(finding)
    return len(findings)


def _ask_spark(
    path: Path, text: str, document: Document, found: Mapping[str, Any], open_session: OpenSession
) -> Iterator[Finding]:
    """Yield the errors that only Spark finds. Spark is not started if it can find no more."""
    conf = found.get("spark", {})
    if document.job is None:
        if not document.script or not isinstance(conf, dict) or document.problems.get("spark"):
            return
        is_broken = any(problem.condition == "SYNTAX" for problem in document.problems.get(SQL, ()))
        if is_broken or is_plain(document.script, document.columns):
            return
    with open_session(conf) as spark:
        for section, problem in find_spark_problems(spark, document):
            yield _place(path, text, section, problem)


def _place(path: Path, text: str, section: str, problem: ThetastreamError) -> Finding:
    """Find the line of an error in the text of the file."""
    message, column = problem.message, None
    mark = problem.mark if isinstance(problem, QueryError) else None
    at = re.search(r", at line (\d+), column (\d+):\n", message)
    if section == SQL and mark is not None and at is not None:
        # The message still shows the line of the statement with a caret. The numbers are those of the file.
        message = f"{message[: at.start()]}\n{message[at.end() :]}"
        line, column = _find_in_sql(text, int(at[1]), int(at[2]))
    else:
        line = _find_key_line(text, section, message)
    return Finding(str(path), line, column, section, problem.condition, message)


def _find_in_sql(text: str, line: int, column: int) -> tuple[int, int]:
    """Convert a line and a column of the statement into a line and a column of the file."""
    opening = re.search(r"^[ \t]*sql[ \t]*=[ \t]*(\"\"\"|'''|\"|')(\n?)", text, re.MULTILINE)
    if opening is None:
        return 1, column
    first = text.count("\n", 0, opening.end()) + 1
    indent = opening.end() - (text.rfind("\n", 0, opening.end()) + 1)
    return first + line - 1, column + (indent if line == 1 else 0)


def _find_key_line(text: str, section: str, message: str) -> int:
    """Find the line of the key that a message names; without such a key, the first line of its table."""
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    if section == SQL:
        return next((n for n, line in enumerate(lines, 1) if re.match(r"\s*sql\s*=", line)), 1)
    start, named = 0, re.sub(r"[\"'\s]", "", section)
    for n in heads:
        if re.sub(r"[\[\]\"'\s]", "", lines[n].partition("#")[0]) == named:
            start = n
    end = next((n for n in heads if n > start), len(lines))
    keys = [re.match(r"\s*[\"']?([\w.]+)[\"']?\s*=", line) for line in lines[start:end]]
    words = re.findall(r"\w+(?:\.\w+)*", message)
    for word in words:
        for n, key in enumerate(keys):
            if key is not None and key[1] == word:
                return start + n + 1
    return start + 1


def _find_toml_line(message: str) -> int:
    at = re.search(r"line (\d+)", message)
    return int(at[1]) if at else 1


def is_plain(script: Sequence[Statement], sources: Scope) -> bool:
    """Whether every expression of one statement is plain; ``sources`` are its inputs."""
    return len(script) == 1 and _is_plain_select(script[0].select, sources)


def _is_plain_select(select: Select, scope: Scope) -> bool:
    scope = dict(scope)
    for part in select.named:
        if not _is_plain_select(part.select, scope):
            return False
        scope[part.name.casefold()] = find_output(part.select, scope)
    columns: dict[str, Columns] = {}
    for source in select.sources:
        found = find_source_columns(source, scope)
        if source.subquery is not None:
            return False
        if found is None or (source.select is not None and not _is_plain_select(source.select, scope)):
            return False
        columns[source.alias.casefold()] = {name.casefold(): type_ for name, type_ in found.items()}
    return all(_is_of_one_class(part, columns) for part in _split(select))


def _split(select: Select) -> Iterator[Phrase]:
    """Yield the parts of a SELECT, each of which must have values of one class."""
    for condition in select.conditions:
        for conjunct in split_conjuncts(condition):
            # An empty phrase is not plain. It stands for a conjunct without a comparison.
            yield conjunct if split_comparisons(conjunct) else Phrase(conjunct.source, ())
    for item in select.items.split_at_commas():
        named = len(item.tokens) > 2 and item.tokens[-2].keyword == "AS"
        yield item.slice(0, -2) if named else item
    if select.group_by is not None:
        yield from select.group_by.split_at_commas()
    if select.having is not None or select.tail:
        yield Phrase(select.text, ())


def _is_of_one_class(phrase: Phrase, columns: Mapping[str, Columns]) -> bool:
    if not phrase:
        return False
    if phrase.text == "*" or (len(phrase.tokens) == 3 and phrase.text.endswith(".*")):
        return True
    classes, tokens = set[str](), phrase.tokens
    for n, token in enumerate(tokens):
        following = tokens[n + 1].text if n + 1 < len(tokens) else ""
        if token.kind not in _KINDS:
            return False
        if following == "(" and token.text[0].isalpha() and token.kind not in ("AND", "BETWEEN"):
            if token.keyword not in _ANY | _NUMERIC | _SAME:
                return False
            classes |= {"number"} if token.keyword in _ANY | _NUMERIC else set()
        elif token.kind == "NUMBER":
            classes.add("number")
        elif token.kind == "STRING":
            classes.add("text")
        elif token.kind in ("PLUS", "DASH", "SLASH"):
            classes.add("number")
        elif token.kind == "FIELD" or (token.kind in ("VAR", "IDENTIFIER") and following != "."):
            owner = tokens[n - 2].name.casefold() if token.kind == "FIELD" else None
            types = [
                found.get(token.name.casefold()) for alias, found in columns.items() if owner in (alias, None)
            ]
            # An unknown name has no type. It was reported as an error before.
            classes |= {_CLASSES.get(type_.upper(), "unknown") for type_ in types if type_ is not None}
    return len(classes) < 2 and "unknown" not in classes
