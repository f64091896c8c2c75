"""Arguments of ``th.Table`` are checked when the table is declared, before a join needs them."""

from typing import Any

import pandas as pd
import pytest

import thetastream as th


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"source": "p", "key": 5}, "key must be the name of a column or a list of names.*not 5"),
        ({"source": "p", "key": None}, "key must be.*not None"),
        ({"source": "p", "key": ["k", ""]}, r"key must be.*not \['k', ''\]"),
        ({"source": "p", "key": "k", "valid_from": 5}, 'as in valid_from="since", not 5'),
        ({"source": "p", "format": 5}, 'as in format="delta", not 5'),
        ({"source": "p", "options": "header=true"}, "options must be a dict.*not 'header=true'"),
        ({"source": ""}, "source must be.*not ''"),
        ({"source": pd.DataFrame({"k": [1]})}, "source must be.*not a DataFrame of pandas$"),
        ({"source": lambda: None}, "must take one argument, the Spark session, as in lambda spark"),
    ],
    ids=["number", "none", "list", "valid_from", "format", "options", "source", "pandas", "function"],
)
def test_arguments_of_another_type_are_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(th.QueryError, match=rf"(?m)^\[BAD_VALUE\].*{what}"):
        th.Table(**given)


def test_a_function_of_other_arguments_that_have_defaults_is_taken() -> None:
    assert callable(th.Table(lambda spark, name="prices": spark.table(name)).source)


def test_a_function_must_return_a_batch_dataframe() -> None:
    table = th.Table(lambda spark: pd.DataFrame({"k": [1]}))
    with pytest.raises(
        th.QueryError, match="must return a batch DataFrame of Spark, not a DataFrame of pandas"
    ):
        table.read(None)  # type: ignore[arg-type]
