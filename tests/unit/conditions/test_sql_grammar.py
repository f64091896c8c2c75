"""Statements are parsed into clauses without Spark, and refused with a caret at the place of the mistake."""

import contextlib
import random

import pytest

from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Insert, View, find_inputs
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import AsOf, Nearest
from thetastream.core.spans import Rows


def parse_statement(text):
    (statement,) = parse_script(text)
    return statement


def parse_select(text):
    return parse_statement(text).select


def test_every_clause():
    statement = parse_statement(
        """EXPLAIN SELECT ONLINE R.a2, sum(S.b2) AS total
           FROM db.events AS R, (SELECT b1, b2 * 2 AS b2 FROM s x WHERE b1 > 0) S
           WHERE R.a1 > S.b1 AND R.n IS DISTINCT FROM S.n
           WITHIN R 10 MINUTES, S INTERVAL '1' MINUTE
           GROUP BY R.a2 HAVING count(*) > 1;"""
    )
    found = statement.select
    assert statement.is_explain
    assert not found.is_distinct
    assert found.items.text == "R.a2, sum(S.b2) AS total"
    assert [(s.alias, s.name) for s in found.sources] == [("R", "db.events"), ("S", "")]
    subquery = found.sources[1].select
    assert subquery is not None
    assert subquery.items.text == "b1, b2 * 2 AS b2"
    assert [condition.text for condition in subquery.conditions] == ["b1 > 0"]
    assert [(s.alias, s.name) for s in subquery.sources] == [("x", "s")]
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
    assert parse_select(f"SELECT ONLINE * FROM r, s WHERE r.x > s.y {text}").within == within
    assert parse_select(f"SELECT ONLINE * FROM r, s {text}").within == within


def test_joins_and_their_conditions():
    found = parse_select(
        "select online r.x from r JOIN s ON r.x > s.y INNER JOIN t u ON t.z = s.z CROSS JOIN v WHERE v.q > 1"
    )
    assert [s.alias for s in found.sources] == ["r", "s", "u", "v"]
    assert [c.text for c in found.conditions] == ["r.x > s.y", "t.z = s.z", "v.q > 1"]


def test_online_adds_nothing():
    plain, online = (parse_select(f"SELECT {word} r.x FROM r, s WHERE r.x > s.y") for word in ("", "ONLINE"))
    assert plain.items.text == online.items.text == "r.x"
    assert parse_select("SELECT online, r.x FROM r, s").items.text == "online, r.x"
    assert parse_select("SELECT DISTINCT r.x FROM r, s").is_distinct


def test_with_subqueries_and_using():
    found = parse_select(
        """WITH high AS (SELECT id, k FROM r WHERE v > 1), both AS (SELECT high.k FROM high, s WITHIN 1 day)
           SELECT k FROM both JOIN (SELECT k FROM t JOIN u USING (`a b`, k)) x USING (k)
           ORDER BY k DESC LIMIT 3 OFFSET 2"""
    )
    assert [(part.name, len(part.select.sources)) for part in found.named] == [("high", 1), ("both", 2)]
    assert found.named[1].select.within == "1 day"
    assert [token.name for token in found.sources[1].using] == ["k"]
    inner = found.sources[1].select
    assert inner is not None
    assert [token.name for token in inner.sources[1].using] == ["a b", "k"]
    assert [phrase.text for phrase in found.tail] == ["ORDER BY k DESC", "LIMIT 3", "OFFSET 2"]


def test_views_inserts_and_scripts():
    view = parse_statement(
        "CREATE OR REPLACE TEMPORARY VIEW v (a, b) AS WITH x AS (SELECT 1 AS y FROM r) SELECT y FROM x"
    )
    assert view.head == View("v", 33, ("a", "b"), is_replaced=True)
    insert = parse_statement("EXPLAIN INSERT INTO TABLE parquet.`a/b` (x) SELECT y FROM r")
    assert insert.is_explain
    assert insert.head == Insert("parquet.`a/b`", 26, ("x",))
    assert parse_statement("INSERT INTO out (SELECT y FROM r)").head == Insert("out", 12)
    script = parse_script(
        "CREATE VIEW v AS SELECT x FROM r;; -- then\nEXPLAIN WITH w AS (SELECT x FROM r)"
        " SELECT x FROM v, w, `R` q;"
    )
    assert [statement.is_explain for statement in script] == [False, True]
    assert [source.name for _, source in find_inputs(script)] == ["r", "r", "`R`"]
    with pytest.raises(QueryError, match="only the last statement"):
        parse_script("SELECT x FROM r; SELECT x FROM r")


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("left outer join", "left"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
        ("ANTI JOIN", "anti"),
    ],
)
def test_kinds_of_joins(words, how):
    found = parse_select(f"SELECT * FROM r {words} s ON left(r.x, 1) = s.x WHERE r.y > 1 WITHIN 1 day")
    assert found.how == how
    assert [source.alias for source in found.sources] == ["r", "s"]
    joined = [phrase.text for phrase in found.conditions]
    where = [phrase.text for phrase in found.where]
    assert (joined, where) == (
        (["left(r.x, 1) = s.x", "r.y > 1"], []) if how == "inner" else (["left(r.x, 1) = s.x"], ["r.y > 1"])
    )


@pytest.mark.parametrize(
    ("join", "how"),
    [
        ("JOIN s q EXACT NEAREST 3 BY DISTANCE abs(r.x - q.x) ON r.y = q.y", Nearest(3, "abs(r.x - q.x)")),
        ("LEFT JOIN s AS q NEAREST BY DISTANCE q.x", Nearest(1, "q.x", keep_unmatched=True)),
        ("JOIN s AS q APPROX NEAREST 2 BY SIMILARITY f(q.x)", Nearest(2, "f(q.x)", direction="similarity")),
        ("JOIN nearest q APPROX NEAREST 2 BY DISTANCE q.nearest ON true", Nearest(2, "q.nearest")),
        ("ASOF JOIN s q ON r.y = q.y AND r.t >= q.t AND q.x > 1", AsOf(1, "(r.t) - (q.t)")),
        ("ASOF JOIN s q ON r.t >= q.t AND r.x + q.x > 1", AsOf(1, "(r.t) - (q.t)")),
        *(
            (
                f"{words} JOIN s q ON r.t < q.t + INTERVAL 1 DAY",
                AsOf(1, "(q.t + INTERVAL 1 DAY) - (r.t)", True),
            )
            for words in ("ASOF LEFT", "LEFT ASOF", "ASOF LEFT OUTER", "LEFT OUTER ASOF")
        ),
        ("ASOF JOIN s q MATCH_CONDITION (r.t >= q.t) ON r.y > q.y", AsOf(1, "(r.t) - (q.t)", True)),
        ("ASOF INNER JOIN s AS q MATCH_CONDITION (q.t <= r.t) USING (y)", AsOf(1, "(r.t) - (q.t)")),
        ("ASOF JOIN s q USING (y, t)", AsOf(1, "(r.t) - (q.t)")),
        ("LEFT ASOF JOIN s q USING (t)", AsOf(1, "(r.t) - (q.t)", True)),
        ("JOIN s FOR SYSTEM_TIME AS OF r.t AS q ON r.y = q.y", AsOf(1, "r.t")),
        (
            "LEFT JOIN s AS q FOR SYSTEM_TIME AS OF r.t + INTERVAL 1 DAY ON r.y = q.y",
            AsOf(1, "r.t + INTERVAL 1 DAY", True),
        ),
        (
            "JOIN LATERAL (SELECT * FROM s WHERE s.t <= r.t ORDER BY s.t DESC LIMIT 2) q ON true",
            Nearest(2, "`q`.t DESC NULLS LAST"),
        ),
        (
            "LEFT JOIN LATERAL (SELECT q.* FROM s q ORDER BY abs(q.x - r.x) NULLS LAST LIMIT 1) ON true",
            Nearest(1, "abs(q.x - r.x) NULLS LAST", True),
        ),
    ],
)
def test_nearest_and_as_of_joins(join, how):
    found = parse_select(f"SELECT * FROM r {join} WHERE r.y > 1 WITHIN 1 day")
    assert found.how == how
    assert [source.alias for source in found.sources] == ["r", "q"]
    assert [phrase.text for phrase in found.where] == ["r.y > 1"]


@pytest.mark.parametrize(("word", "how"), [("", "semi"), ("NOT ", "anti")])
def test_exists_is_a_join(word, how):
    found = parse_select(
        f"SELECT x FROM r WHERE x > 1 AND {word}EXISTS (SELECT 1 FROM s q WHERE q.x = r.x) AND y < 2 "
        "WITHIN 1 day"
    )
    assert found.how == how
    assert [source.alias for source in found.sources] == ["r", "q"]
    assert found.conditions == ()
    assert [phrase.text for phrase in found.compared] == ["q.x = r.x"]
    assert [phrase.text for phrase in found.where] == ["x > 1", "y < 2"]
    # A function of arrays and a negated conjunct of another kind are no joins.
    plain = parse_select("SELECT x FROM r WHERE exists(r.a, v -> v > 1) AND NOT (x > 1)")
    assert (plain.how, len(plain.sources)) == ("inner", 1)


@pytest.mark.parametrize(
    ("condition", "how", "values", "columns"),
    [
        ("x IN (SELECT y FROM s q WHERE q.z > r.z)", "semi", ["x"], ["y"]),
        ("r.x NOT IN (SELECT DISTINCT q.y FROM s q)", "anti", ["r.x"], ["q.y"]),
        ("NOT (x + 1 IN (SELECT y * 2 FROM s AS q))", "anti", ["x + 1"], ["y * 2"]),
        ("NOT x NOT IN (SELECT y FROM s q)", "semi", ["x"], ["y"]),
        ("(x, r.y) IN (SELECT z, w FROM s q)", "semi", ["x", "r.y"], ["z", "w"]),
    ],
)
def test_membership_is_a_join(condition, how, values, columns):
    found = parse_select(f"SELECT x FROM r WHERE x > 1 AND {condition} WITHIN 1 day")
    assert [(source.alias, source.how) for source in found.sources] == [("r", "inner"), ("q", how)]
    subquery = found.sources[1].subquery
    assert subquery is not None
    assert [phrase.text for phrase in subquery.values] == values
    assert [phrase.text for phrase in subquery.columns] == columns
    assert subquery.is_negated == (how == "anti")
    assert [phrase.text for phrase in found.where] == ["x > 1"]
    # A list of values is no subquery.
    assert len(parse_select("SELECT x FROM r WHERE x NOT IN (1, 2) AND (x IN (y))").sources) == 1


def test_a_subquery_that_is_more_than_one_source_is_an_input_of_its_own():
    found = parse_select(
        "SELECT x FROM r WHERE x IN (SELECT k FROM s GROUP BY k) AND x NOT IN (SELECT x FROM r WHERE y > 1)"
    )
    assert [(s.alias, s.how) for s in found.sources[1:]] == [("subquery", "semi"), ("subquery_", "anti")]
    first, second = (source.select for source in found.sources[1:])
    assert first is not None
    assert first.group_by is not None
    assert second is not None
    assert [second.items.text, second.conditions[0].text] == ["*", "y > 1"]


def test_words_of_the_dialect_may_be_columns():
    found = parse_select("SELECT ONLINE r.within, r.from, `where` FROM r, s WHERE r.within > s.online")
    assert found.items.text == "r.within, r.from, `where`"
    found = parse_select(
        "SELECT ONLINE percentile_cont(0.5) WITHIN GROUP (ORDER BY r.x) FROM r, s WITHIN 1 day GROUP BY r.y"
    )
    assert found.within == "1 day"
    assert parse_select("SELECT ONLINE 1 AS having FROM r, s").items.text == "1 AS having"
    assert parse_statement("-- why\nEXPLAIN /* how */ SELECT ONLINE r.x FROM r, s").is_explain
    assert parse_select("SELECT ONLINE r.x -- FROM nowhere\nFROM r, s").items.text == "r.x"


@pytest.mark.parametrize(
    ("text", "condition", "words", "at"),
    [
        ("", "SYNTAX", "a statement is due", None),
        ("UPDATE r SET x = 1", "SYNTAX", "starts with SELECT", "UPDATE"),
        ("SELECT ONLINE FROM r, s", "SYNTAX", "select list is empty", None),
        ("SELECT ONLINE r.x", "SYNTAX", "FROM is missing", None),
        ("SELECT ONLINE r.x FROM", "SYNTAX", "nothing follows FROM", "FROM"),
        ("SELECT ONLINE * FROM r, r", "DUPLICATE_ALIAS", "'r' is taken", "r"),
        ("SELECT * FROM r LEFT JOIN s", "SYNTAX", "ON must follow a LEFT JOIN", "JOIN s"),
        ("SELECT * FROM r LEFT s ON r.x = s.x", "SYNTAX", "followed by JOIN", "LEFT"),
        ("SELECT * FROM r, q LEFT JOIN s ON r.x = s.x", "UNSUPPORTED_SQL", "JOIN ... ON", ", q"),
        ("SELECT * FROM r ANTI JOIN s ON r.x = s.x, q", "UNSUPPORTED_SQL", "JOIN ... ON", ", q"),
        ("SELECT 1 FROM r JOIN s USING (x) LEFT JOIN q ON q.y", "UNSUPPORTED_SQL", "JOIN ... ON", "JOIN s"),
        ("SELECT * FROM r RIGHT JOIN s NEAREST BY DISTANCE s.x", "UNSUPPORTED_SQL", "LEFT JOIN", "NEAREST"),
        ("SELECT * FROM r JOIN s NEAREST 2 BY r.x - s.x", "SYNTAX", "BY DISTANCE", "NEAREST"),
        ("SELECT * FROM r JOIN s NEAREST BY DISTANCE", "SYNTAX", "BY DISTANCE", "NEAREST"),
        ("SELECT * FROM r JOIN s NEAREST 2", "SYNTAX", "BY DISTANCE", "NEAREST"),
        ("SELECT * FROM r NEAREST 2 JOIN s BY DISTANCE s.x", "SYNTAX", "BY DISTANCE", "NEAREST"),
        ("SELECT * FROM r JOIN s NEAREST 1.5 BY DISTANCE s.x", "SYNTAX", "whole number", "1.5"),
        ("SELECT * FROM r JOIN s NEAREST 0 BY DISTANCE s.x", "NEAREST", "positive", "0"),
        ("SELECT * FROM r ASOF JOIN s", "SYNTAX", "ON must follow an ASOF JOIN", "JOIN"),
        ("SELECT * FROM r ASOF JOIN s ON r.x = s.x", "UNSUPPORTED_SQL", "has 0", "JOIN s"),
        (
            "SELECT * FROM r ASOF JOIN s ON r.x > s.x AND r.y < s.y AND r.z = s.z",
            "UNSUPPORTED_SQL",
            "ASOF INNER JOIN s MATCH_CONDITION (r.x > s.x) ON r.y < s.y AND r.z = s.z",
            "JOIN s",
        ),
        (
            "SELECT * FROM r LEFT ASOF JOIN s ON s.t BETWEEN r.t - x AND r.t",
            "UNSUPPORTED_SQL",
            "ASOF LEFT JOIN s MATCH_CONDITION (s.t >= r.t - x) ON s.t BETWEEN r.t - x AND r.t",
            "JOIN s",
        ),
        ("SELECT * FROM r ASOF RIGHT JOIN s ON r.x > s.x", "UNSUPPORTED_SQL", "in the other order", "ASOF"),
        ("SELECT * FROM r ASOF ANTI JOIN s ON r.x > s.x", "UNSUPPORTED_SQL", "write ANTI JOIN", "ASOF"),
        ("SELECT * FROM r JOIN s MATCH_CONDITION (r.x > s.x)", "UNSUPPORTED_SQL", "ASOF JOIN", "r.x >"),
        ("SELECT * FROM r ASOF JOIN s MATCH_CONDITION (r.x = s.x)", "UNSUPPORTED_SQL", "has 0", "JOIN s"),
        ("SELECT * FROM r, s FOR SYSTEM_TIME AS OF r.t AS q", "UNSUPPORTED_SQL", "in [LEFT] JOIN", "r.t"),
        ("SELECT * FROM r JOIN s VERSION AS OF 3 ON r.x = s.x", "UNSUPPORTED_SQL", "DataFrame", "VERSION"),
        ("SELECT * FROM r, LATERAL explode(r.x)", "UNSUPPORTED_SQL", "explode(x) AS y", "LATERAL"),
        ("SELECT * FROM r LATERAL VIEW explode(r.x) t AS y", "UNSUPPORTED_SQL", "explode(x) AS y", "LATERAL"),
        (
            "SELECT * FROM r, LATERAL (SELECT s.x AS y FROM s LIMIT 1) q",
            "UNSUPPORTED_SQL",
            "NEAREST k BY DISTANCE",
            "(SELECT",
        ),
        ("SELECT q.* FROM r, LATERAL (SELECT x FROM s) q", "UNSUPPORTED_SQL", "name the columns", "*"),
        (
            "SELECT * FROM r, LATERAL (SELECT * FROM s LIMIT 1) q",
            "UNSUPPORTED_SQL",
            "ORDER BY one expression",
            "1) q",
        ),
        (
            "SELECT * FROM r JOIN s ON r.k = s.k "
            "QUALIFY row_number() OVER (PARTITION BY r.id ORDER BY s.t DESC) = 1",
            "UNSUPPORTED_SQL",
            "JOIN stream NEAREST 1 BY DISTANCE s.t DESC ON condition",
            "QUALIFY",
        ),
        ("SELECT * FROM q JOIN r ON q.x LEFT JOIN s USING (k)", "UNSUPPORTED_SQL", "ON q.k = s.k", "JOIN s"),
        ("SELECT * FROM r FULL JOIN s USING (x)", "UNSUPPORTED_SQL", "write ON", "USING"),
        ("SELECT * FROM r WHERE EXISTS (SELECT 1 FROM s)", "SYNTAX", "compares both", "EXISTS"),
        ("SELECT * FROM r WHERE EXISTS (SELECT 1 FROM r WHERE r.x)", "DUPLICATE_ALIAS", "AS", "r WHERE r"),
        (
            "SELECT * FROM r WHERE NOT EXISTS (SELECT count(*) FROM s WHERE r.x = s.x)",
            "UNSUPPORTED_SQL",
            "always has a row",
            "count",
        ),
        ("SELECT * FROM r WHERE x IN (SELECT y, z FROM s)", "UNSUPPORTED_SQL", "1 values", "y, z"),
        ("SELECT * FROM r WHERE x = ANY (SELECT y FROM s)", "UNSUPPORTED_SQL", "write x IN (", "ANY"),
        ("SELECT * FROM r WHERE x <> ALL (SELECT y FROM s)", "UNSUPPORTED_SQL", "write x NOT IN (", "ALL"),
        ("SELECT * FROM r WHERE x > ALL (SELECT y FROM s)", "UNSUPPORTED_SQL", "EXISTS (SELECT 1", "ALL"),
        ("SELECT * FROM r, s WHERE x NOT IN (SELECT y FROM t)", "UNSUPPORTED_SQL", "... FROM r, s", "x NOT"),
        ("SELECT ONLINE * FROM r, s ON r.x = s.x", "SYNTAX", "ON belongs to a JOIN", "ON"),
        ("SELECT ONLINE * FROM r JOIN s ON", "SYNTAX", "must follow ON", "ON"),
        ("SELECT ONLINE * FROM r,, s", "SYNTAX", "must follow", ","),
        ("SELECT ONLINE * FROM r x y, s", "SYNTAX", "not expected", "y, s"),
        ("SELECT ONLINE * FROM (SELECT x FROM r), s", "SYNTAX", "needs a name", "(SELECT"),
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
        ("SELECT * FROM r WITHIN 1 day", "SYNTAX", "names one stream", "1 day"),
        ("SELECT * FROM r JOIN s USING x", "SYNTAX", "in parentheses", "USING"),
        ("SELECT * FROM r JOIN s USING (r.x)", "SYNTAX", "in parentheses", "USING"),
        ("SELECT * FROM r, s USING (x)", "SYNTAX", "USING belongs to a JOIN", "USING"),
        ("SELECT * FROM r NATURAL JOIN s", "UNSUPPORTED_SQL", "joins are INNER", "NATURAL"),
        ("WITH x (SELECT a FROM r SELECT a FROM x", "SYNTAX", "no matching", "(SELECT"),
        ("WITH x AS SELECT a FROM r", "SYNTAX", "AS (SELECT ...) must follow", "AS"),
        ("WITH x AS ()", "SYNTAX", "subquery is empty", "()"),
        ("WITH x AS (SELECT a FROM r)", "SYNTAX", "SELECT must follow WITH", None),
        ("WITH x AS (SELECT a FROM r), X AS (SELECT 1) SELECT a FROM x", "DUPLICATE_ALIAS", "twice", "X"),
        ("WITH RECURSIVE x AS (SELECT 1) SELECT a FROM x", "UNSUPPORTED_SQL", "recursive", "RECURSIVE"),
        ("CREATE TABLE x AS SELECT a FROM r", "UNSUPPORTED_SQL", "makes views only", "TABLE"),
        ("CREATE GLOBAL TEMP VIEW x AS SELECT a FROM r", "UNSUPPORTED_SQL", "GLOBAL", "GLOBAL"),
        ("CREATE VIEW a.x AS SELECT a FROM r", "SYNTAX", "no dots", "a.x"),
        ("CREATE VIEW x SELECT a FROM r", "SYNTAX", "AS SELECT", "SELECT"),
        ("CREATE VIEW x (a.b) AS SELECT a FROM r", "SYNTAX", "column names", "a.b"),
        ("CREATE VIEW", "SYNTAX", "a name must follow VIEW", None),
        ("CREATE VIEW x AS", "SYNTAX", "a statement is due", None),
        ("INSERT OVERWRITE x SELECT a FROM r", "UNSUPPORTED_SQL", "INTO", "OVERWRITE"),
        ("INSERT INTO SELECT a FROM r", "SYNTAX", "a name must follow INTO", "SELECT"),
        ("SELECT a FROM r; SELECT b FROM r", "UNSUPPORTED_SQL", "only the last", "SELECT a"),
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


def test_a_statement_may_end_with_options():
    text = (
        "SELECT a FROM r, s WHERE x > y WITHIN 1 m OPTIONS (late = 'out/late', max_units = 8, order = true)"
    )
    found = parse_statement(text)
    assert found.options == {"late": "out/late", "max_units": 8, "order": True}
    assert found.select.within == "1 m"
    assert parse_statement("SELECT options (a) FROM r GROUP BY options (a)").options == {}


@pytest.mark.parametrize("name", ["nearby", "alias", "inner_join", "valid_from", "r.by", "r.as"])
def test_options_follow_a_name_that_ends_like_a_keyword(name):
    found = parse_statement(f"SELECT a FROM r, s WHERE x > {name} OPTIONS (max_units = 8)")
    assert found.options == {"max_units": 8}


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("(late)", "names with literals"),
        ("(late = x)", "a text, a number, true or false"),
        ("(late = 'a', LATE = 'b')", "twice"),
    ],
)
def test_wrong_options_point_at_their_place(clause, words):
    with pytest.raises(QueryError, match=words):
        parse_statement(f"SELECT a FROM r OPTIONS {clause}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(7, 10))
def test_cut_and_shuffled_statements_are_refused_by_name_or_read(seed):
    words = (  # noqa: SIM905
        "EXPLAIN SELECT ONLINE DISTINCT R.a , sum ( S.b ) AS t FROM db.r AS R ,"
        " ( SELECT b FROM s WHERE b > 0 ) S"
        " JOIN q ON q.x = R.x WHERE R.a > S.b AND 'x' <> `y` WITHIN R 10 MINUTES , S 1 DAY , q 2 ROWS"
        " GROUP BY R.a HAVING count ( * ) > 1 ; CASE END [ ] { } . 5L"
        " WITH w AS ( SELECT x FROM r ) CREATE OR REPLACE VIEW v ( a ) INSERT INTO out USING ( x ) LIMIT 3"
    ).split()
    chance = random.Random(seed)
    n_read = 0
    for _ in range(1400):
        start = chance.randrange(len(words))
        cut = (
            words[: chance.randrange(len(words))] if chance.random() < 0.5 else words[start:] + words[:start]
        )
        for _ in range(chance.randrange(4)):
            if cut:
                cut[chance.randrange(len(cut))] = chance.choice(words)
        with contextlib.suppress(ThetastreamError):  # any other error fails the test
            parse_script(" ".join(cut))
            n_read += 1
    assert n_read
