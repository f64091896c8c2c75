"""The Jaccard similarity as SQL: it has a form that units know, and refuses other limits."""

from typing import Any

import pytest

from thetastream.conditions import jaccard, parse
from thetastream.conditions.comparisons import find_comparisons
from thetastream.conditions.forms import match_form
from thetastream.core.errors import QueryError
from thetastream.index.measures import REGISTRY


def test_units_know_the_form() -> None:
    (comparison,) = find_comparisons(parse(jaccard("a.tags", "filter(b.tags, t -> t > 3)", at_least=1)))
    found = match_form(comparison.f, REGISTRY["try_jaccard"].forms[0])
    assert found is not None
    assert [operand.text for operand in found] == ["a.tags", "filter(b.tags, t -> t > 3)"]
    assert (comparison.op, comparison.g.text) == (">=", "1.0D")


@pytest.mark.parametrize("text", [1, None, b"a.s", ["a.s"], "", "  ", "a.s, a.t"])
@pytest.mark.parametrize("name", ["left", "right"])
def test_what_is_no_expression_is_refused(name: str, text: Any) -> None:
    arguments = {"left": "a.s", "right": "b.s", name: text}
    with pytest.raises(QueryError, match=rf"\[JACCARD\] {name} of th.jaccard .* as in 'a.tags', not "):
        jaccard(**arguments, at_least=0.5)


def test_a_bracket_that_is_not_closed_is_refused() -> None:
    with pytest.raises(QueryError, match=r"\[SYNTAX\].*closes nothing"):
        jaccard("a.s)", "b.s", at_least=0.5)


@pytest.mark.parametrize("at_least", [0, -0.5, 1.01, float("nan"), True, "0.7", None])
def test_other_limits_are_refused(at_least: object) -> None:
    with pytest.raises(QueryError, match=r"\[JACCARD\] at_least of th.jaccard"):
        jaccard("a.s", "b.s", at_least=at_least)  # type: ignore[arg-type]
