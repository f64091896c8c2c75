"""Statements are parsed into clauses without Spark, and refused with a caret at the place of the mistake."""

import contextlib
import random

import pytest

from thetastream.core.windows import Rows
from thetastream.errors import QueryError, ThetastreamError
from thetastream.sql.grammar import parse_statement


def test_every_clause():
    found = parse_statement(
        """EXPLAIN SELECT ONLINE R.a2, sum(S.b2) AS total
           FROM db.events AS R, (SELECT b1, b2 * 2 AS b2 FROM s x WHERE b1 > 0) S
           WHERE R.a1 > S.b1 AND R.n IS DISTINCT FROM S.n
           WITHIN R 10 MINUTES, S INTERVAL '1' MINUTE
           GROUP BY R.a2 HAVING count(*) > 1;"""
    )
    assert found.is_explain
    assert not found.is_distinct
    assert found.items.text == "R.a2, sum(S.b2) AS total"
    assert [(s.alias, s.name) for s in found.sources] == [("R", "db.events"), ("S", "s")]
    subquery = found.sources[1]
    assert subquery.items is not None
    assert subquery.items.text == "b1, b2 * 2 AS b2"
    assert subquery.where is not None
    assert subquery.where.text == "b1 > 0"
    assert subquery.inner == "x"
    assert [c.text for c in found.conditions] == ["R.a1 > S.b1 AND R.n IS DISTINCT FROM S.n"]
    assert found.within == {"R": "10 MINUTES", "S": "1 MINUTE"}
    assert found.group_by is not None
    assert found.group_by.text == "R.a2"
    assert found.having is not None
    assert found.having.text == "count(*) > 1"


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("WITHIN 10 minutes", "10 minutes"),
        ("WITHIN INTERVAL 1 DAY 2 HOURS", "1 DAY 2 HOURS"),
        ("WITHIN '90 seconds'", "90 seconds"),
        ("WITHIN 1000 ROWS", Rows(1000)),
        ("WITHIN s 1 second, r 2 seconds", {"s": "1 second", "r": "2 seconds"}),
        ("", None),
    ],
)
def test_windows(text, within):
    assert parse_statement(f"SELECT ONLINE * FROM r, s WHERE r.x > s.y {text}").within == within
    assert parse_statement(f"SELECT ONLINE * FROM r, s {text}").within == within


def test_joins_and_their_conditions():
    found = parse_statement(
        "select online r.x from r JOIN s ON r.x > s.y INNER JOIN t u ON t.z = s.z CROSS JOIN v WHERE v.q > 1"
    )
    assert [s.alias for s in found.sources] == ["r", "s", "u", "v"]
    assert [c.text for c in found.conditions] == ["r.x > s.y", "t.z = s.z", "v.q > 1"]


def test_words_of_the_dialect_may_be_columns():
    found = parse_statement("SELECT ONLINE r.within, r.from, `where` FROM r, s WHERE r.within > s.online")
    assert found.items.text == "r.within, r.from, `where`"
    found = parse_statement(
        "SELECT ONLINE percentile_cont(0.5) WITHIN GROUP (ORDER BY r.x) FROM r, s WITHIN 1 day GROUP BY r.y"
    )
    assert found.within == "1 day"
    assert parse_statement("SELECT ONLINE 1 AS having FROM r, s").items.text == "1 AS having"
    assert parse_statement("-- why\nEXPLAIN /* how */ SELECT ONLINE r.x FROM r, s").is_explain
    assert parse_statement("SELECT ONLINE r.x -- FROM nowhere\nFROM r, s").items.text == "r.x"


@pytest.mark.parametrize(
    ("text", "condition", "words", "at"),
    [
        ("", "SYNTAX", "a statement is due", None),
        ("UPDATE r SET x = 1", "SYNTAX", "starts with SELECT ONLINE", "UPDATE"),
        ("SELECT r.x FROM r, s", "SYNTAX", "followed by ONLINE", "r.x FROM"),
        ("SELECT ONLINE FROM r, s", "SYNTAX", "select list is empty", None),
        ("SELECT ONLINE r.x", "SYNTAX", "FROM is missing", None),
        ("SELECT ONLINE r.x FROM", "SYNTAX", "nothing follows FROM", "FROM"),
        ("SELECT ONLINE r.x FROM r", "UNSUPPORTED_SQL", "two streams", "r"),
        ("SELECT ONLINE * FROM r, r", "DUPLICATE_ALIAS", "'r' is taken", "r"),
        ("SELECT ONLINE * FROM r LEFT JOIN s ON r.x = s.x", "UNSUPPORTED_SQL", "inner joins", "LEFT"),
        ("SELECT ONLINE * FROM r JOIN s USING (x)", "UNSUPPORTED_SQL", "inner joins", "USING"),
        ("SELECT ONLINE * FROM r, s ON r.x = s.x", "SYNTAX", "ON belongs to a JOIN", "ON"),
        ("SELECT ONLINE * FROM r JOIN s ON", "SYNTAX", "must follow ON", "ON"),
        ("SELECT ONLINE * FROM r,, s", "SYNTAX", "must follow", ","),
        ("SELECT ONLINE * FROM r x y, s", "SYNTAX", "not expected", "y, s"),
        ("SELECT ONLINE * FROM (SELECT x FROM r), s", "SYNTAX", "needs a name", "(SELECT"),
        ("SELECT ONLINE * FROM (SELECT x FROM r GROUP BY x) r, s", "UNSUPPORTED_SQL", "GROUP", "x) r"),
        ("SELECT ONLINE * FROM (SELECT x FROM r, t) r, s", "UNSUPPORTED_SQL", "reads one stream", "t) r"),
        ("SELECT ONLINE * FROM r, s WHERE r.x > s.y ORDER BY r.x", "UNSUPPORTED_SQL", "no order", "ORDER"),
        ("SELECT ONLINE * FROM r, s LIMIT 5", "UNSUPPORTED_SQL", "no end", "LIMIT"),
        ("SELECT ONLINE * FROM r, s UNION SELECT ONLINE * FROM r, s", "UNSUPPORTED_SQL", "union", "UNION"),
        ("SELECT ONLINE * FROM r, s GROUP BY r.x WHERE r.x > 1", "SYNTAX", "must stand before", "WHERE"),
        ("SELECT ONLINE * FROM r, s WHERE r.x > 1 WHERE r.x > 2", "SYNTAX", "twice", "WHERE r.x > 2"),
        ("SELECT ONLINE * FROM r, s WITHIN q 1 day", "UNKNOWN_ALIAS", "not one of r, s", "q 1"),
        ("SELECT ONLINE * FROM r, s WITHIN 1 day, 2 days", "SYNTAX", "name of a stream each", "1 day,"),
        ("SELECT ONLINE * FROM r, s WITHIN x ROWS", "UNKNOWN_ALIAS", "'x'", "x ROWS"),
        ("SELECT ONLINE * FROM r, s WITHIN 1.5 ROWS", "SYNTAX", "1000 ROWS", "1.5"),
        ("SELECT ONLINE * FROM r CROSS s", "SYNTAX", "followed by JOIN", "CROSS"),
        ("SELECT ONLINE * FROM r, s WITHIN r 1 day, r 2 days", "SYNTAX", "two windows", "r 2"),
        ("SELECT ONLINE (r.x FROM r, s", "SYNTAX", "no matching", "(r.x"),
        ("SELECT ONLINE r.x FROM r, s WHERE 'open", "SYNTAX", "", None),
        ("SELECT ONLINE * FROM r, s GROUP r.x", "SYNTAX", "not expected", "r.x"),
        ("EXPLAIN", "SYNTAX", "a statement is due", None),
    ],
)  # fmt: skip
def test_refusals_point_at_their_place(text, condition, words, at):
    with pytest.raises(QueryError) as error:
        parse_statement(text)
    assert error.value.condition == condition
    message = str(error.value)
    assert words in message
    if at is not None:
        *_, shown, caret = message.split("\n")
        assert shown[2:] == text
        assert text[caret.index("^") - 2 :].startswith(at)


def test_cut_and_shuffled_statements_are_refused_by_name_or_read():
    words = (  # noqa: SIM905
        "EXPLAIN SELECT ONLINE DISTINCT R.a , sum ( S.b ) AS t FROM db.r AS R ,"
        " ( SELECT b FROM s WHERE b > 0 ) S"
        " JOIN q ON q.x = R.x WHERE R.a > S.b AND 'x' <> `y` WITHIN R 10 MINUTES , S 1 DAY , q 2 ROWS"
        " GROUP BY R.a HAVING count ( * ) > 1 ; CASE END [ ] { } . 5L"
    ).split()
    chance = random.Random(7)
    n_read = 0
    for _ in range(4000):
        start = chance.randrange(len(words))
        cut = (
            words[: chance.randrange(len(words))] if chance.random() < 0.5 else words[start:] + words[:start]
        )
        for _ in range(chance.randrange(4)):
            if cut:
                cut[chance.randrange(len(cut))] = chance.choice(words)
        with contextlib.suppress(ThetastreamError):  # any other error fails the test
            parse_statement(" ".join(cut))
            n_read += 1
    assert n_read
