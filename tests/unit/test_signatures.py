"""The public functions name every setting as a keyword-only parameter, so a type checker finds a typo."""

import inspect

import pytest

import thetastream as th
from thetastream.frontend.request import SETTINGS

SHARED = {
    "index",
    "archive_period",
    "event_time",
    "result_time",
    "mailbox",
    "cache_folder",
    "late",
    "statistics",
}


@pytest.mark.parametrize("function", [th.join, th.plan, th.sql, th.aggregate])
def test_every_setting_is_a_keyword_parameter(function):
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    # A statement names the result time in its select list.
    unused = {"result_time"} if function in (th.sql, th.aggregate) else set()
    assert named == [name for name in SETTINGS if name not in unused]
    assert not [p for p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def test_join_many_takes_what_tasks_share():
    parameters = inspect.signature(th.join_many).parameters.values()
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} == SHARED
    assert set(SETTINGS) > SHARED


def test_every_parameter_and_result_is_annotated():
    for function in (th.join, th.plan, th.sql, th.aggregate, th.join_many):
        signature = inspect.signature(function)
        missing = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
        assert not missing, function.__name__
        assert signature.return_annotation is not signature.empty
