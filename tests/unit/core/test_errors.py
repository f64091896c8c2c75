"""What a notebook shows of an error of ours."""

import pytest

from thetastream.core.errors import FLAG, InvalidQuery, QueryError, ThetastreamError
from thetastream.core.spans import read_trigger


def catch(monkeypatch: pytest.MonkeyPatch, flag: str) -> ThetastreamError:
    monkeypatch.setenv(FLAG, flag)
    with pytest.raises(ThetastreamError) as caught:
        read_trigger("often")
    return caught.value


def test_a_notebook_shows_the_line_of_the_user_and_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    where, line, message, note = catch(monkeypatch, "")._render_traceback_()
    assert where.endswith("in catch")
    assert line.strip() == 'read_trigger("often")'
    assert message.startswith("thetastream.core.errors.QueryError: [BAD_VALUE] trigger must be")
    assert "not 'often'" in message
    assert note == "More: thetastream error BAD_VALUE"


def test_whole_tracebacks_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = catch(monkeypatch, "1")._render_traceback_()
    assert lines[0].startswith("Traceback")
    assert any("spans.py" in line for line in lines)


def test_every_problem_of_a_query_has_its_line() -> None:
    error = InvalidQuery([QueryError("A", "one"), QueryError("B", "two")])
    assert error._render_traceback_()[1:] == ["  1. [A] one", "  2. [B] two", "More: thetastream error A B"]
