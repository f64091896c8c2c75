"""Options are declared once: signatures, docstrings, the table of settings and all doors follow from it."""

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

import thetastream as th
from thetastream.core.errors import QueryError
from thetastream.families.options import (
    GroupOptions,
    JoinOptions,
    Options,
    StatementOptions,
    TaskOptions,
    list_options,
    read_options,
)

DOORS: dict[Callable[..., Any], type] = {
    th.join: JoinOptions,
    th.plan: JoinOptions,
    th.join_many: TaskOptions,
    th.sql: StatementOptions,
    th.insert: StatementOptions,
    th.aggregate: GroupOptions,
}


def session(**settings: str) -> dict[str, str]:
    """Return the settings of a Spark session that has defaults of options."""
    return {f"spark.thetastream.{name}": text for name, text in settings.items()} | {
        "spark.app.name": "tests"
    }


@pytest.mark.parametrize("function", DOORS, ids=lambda function: function.__name__)
def test_every_option_is_a_keyword_parameter_with_an_entry_in_the_docstring(function):
    parameters = inspect.signature(function).parameters.values()
    options = list_options(DOORS[function])
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [name for name in named if name in options] == list(options)
    assert not [p for p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert "**options" not in function.__doc__
    for name in options:
        assert f"\n    {name} : optional\n" in function.__doc__, name


@pytest.mark.parametrize("function", DOORS, ids=lambda function: function.__name__)
def test_help_has_a_line_for_each_parameter(function):
    head, _, _ = pydoc.plain(pydoc.render_doc(function)).partition("\n) -> ")
    lines = head.partition("(\n")[2].splitlines()
    names = [line.strip().partition(":")[0].rstrip(",") for line in lines]
    assert [name for name in names if name != "*"] == list(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", DOORS, ids=lambda function: function.__name__)
def test_an_unknown_option_is_refused_with_the_name_that_is_meant(function):
    with pytest.raises(QueryError, match=r"UNKNOWN_SETTING.*'lat' is no option.*did you mean 'late'"):
        function({}, "", lat="out/late")


def test_every_parameter_and_result_is_annotated():
    for function in DOORS:
        signature = inspect.signature(function)
        missing = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
        assert not missing, function.__name__
        assert signature.return_annotation is not signature.empty


def test_the_session_gives_defaults_of_what_the_door_takes():
    found = session(order="outer", max_units="8", punctuations="True")
    options, problems = read_options({"max_units": 4, "late": None}, found, JoinOptions)
    assert options.values == {"order": "outer", "max_units": 4, "punctuations": True}
    assert options.of_session == {"order", "punctuations"}
    assert options.of_user == {"max_units"}
    assert options.without(["order", "max_units"]).values == {"punctuations": True}
    options, more = read_options({}, found, GroupOptions)
    assert options.values == {"max_units": 8}
    assert not [*problems, *more]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"oder": "outer"}, "spark.thetastream.oder.*did you mean 'order'"),
        ({"shed": "1 GB"}, "spark.thetastream.shed, which is no option that a text can give"),
    ],
)
def test_a_session_with_an_unknown_option_is_refused(settings, expected):
    with pytest.raises(QueryError, match=rf"UNKNOWN_SETTING.*{expected}"):
        read_options({}, session(**settings), JoinOptions)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("index", "btree", "UNKNOWN_INDEX.*hash_sorted"),
        ("punctuations", "yes", "BAD_VALUE.*must be true or false, not 'yes'"),
        ("result_time", 2, "BAD_VALUE.*must be true or false, not 2"),
        ("mailbox", 5, "MAILBOX.*must be a folder"),
        ("late", "", "LATE_FOLDER.*must be a folder"),
        ("cache_folder", 7, "CACHE_FOLDER.*must be a folder"),
        ("cache_folder", "hdfs://names/cache", "CACHE_FOLDER.*of each host"),
        ("max_units", 0, "MAX_UNITS.*from 1 to 4096, not 0"),
        ("max_units", True, "MAX_UNITS.*from 1 to 4096, not True"),
        ("shed", "1 GB", r"SHED.*th\.Shed"),
        ("statistics", {}, r"STATISTICS.*th\.Statistics"),
    ],
)
def test_a_wrong_value_is_refused_before_the_streams_are_read(name, value, expected):
    _, problems = read_options({name: value}, session(), Options)
    with pytest.raises(QueryError, match=expected):
        raise problems[0]
