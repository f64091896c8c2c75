"""Says of which statements nothing can stay in a database, so that the next client may use it too.

A fresh database takes longer than most questions: 15 ms of CPU time to open and 5 ms to close. So a database
is used again if its statement was a SELECT of plain tables, joins and subqueries that calls only functions of
a list. It is a list of what is allowed: a function that a later version of DuckDB adds is not on it, so after
a statement that calls it, the next client gets a fresh database.
"""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_FUNCTION_NAMES = """
    + - * / // % || ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape
    count count_star sum avg mean min max any_value first last median mode quantile_cont quantile_disc
    approx_quantile approx_count_distinct stddev stddev_pop stddev_samp variance var_pop var_samp corr
    covar_pop covar_samp bool_and bool_or bit_and bit_or count_if string_agg listagg list array_agg
    arg_min arg_max min_by max_by histogram product
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    abs round floor ceil ceiling sign sqrt cbrt power pow exp ln log log2 log10 mod greatest least degrees
    radians sin cos tan asin acos atan atan2 pi isnan isinf isfinite trunc bit_count xor
    lower upper length strlen substring substr left right trim ltrim rtrim replace concat concat_ws
    split_part string_split starts_with ends_with prefix suffix contains strpos instr lpad rpad reverse
    repeat regexp_matches regexp_replace regexp_extract regexp_full_match ascii chr md5 hash levenshtein
    hamming jaccard
    date_trunc date_part date_diff datediff date_sub year month day hour minute second millisecond
    microsecond quarter week dayofweek isodow dayofmonth dayofyear last_day epoch epoch_ms epoch_us epoch_ns
    time_bucket strftime strptime make_date make_timestamp make_timestamptz to_timestamp to_years to_months
    to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds age timezone
    nullif list_value list_contains list_extract list_position list_sum list_avg list_min list_max
    list_count list_sort list_distinct array_length array_contains len flatten
    struct_pack struct_extract row map map_extract map_keys map_values cardinality
"""
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""Functions that compute a value from their arguments, and do nothing else."""
_KIND_NAMES = """
    SELECT_NODE SET_OPERATION_NODE BASE_TABLE SUBQUERY JOIN EMPTY EXPRESSION_LIST
    ORDER_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING LIMIT_MODIFIER DISTINCT_MODIFIER
    CONSTANT COLUMN_REF STAR FUNCTION WINDOW COMPARISON CONJUNCTION OPERATOR CASE BETWEEN CAST TYPE LAMBDA
"""
KINDS = frozenset(_KIND_NAMES.split())
"""Parts of a statement that read and compute, and do nothing else: the classes of expressions, and the types
of what has no class."""


def leaves_no_trace(database: "duckdb.DuckDBPyConnection", sql: str) -> bool:
    """Whether nothing of a statement can stay in the database; False if that is not known.

    >>> import duckdb
    >>> database = duckdb.connect(":memory:")
    >>> leaves_no_trace(database, "SELECT a, count(*) FROM results GROUP BY a ORDER BY 2")
    True
    >>> leaves_no_trace(database, "SELECT setseed(0.5)"), leaves_no_trace(database, "FROM range(3)")
    (False, False)
    """
    with database.cursor() as connection:
        found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    try:
        tree = json.loads(found[0]) if found is not None else {"error": True}
        return not tree["error"] and _is_traceless(tree["statements"])
    except RecursionError:  # A sum of some hundred terms is as deep.
        return False


def _is_traceless(node: Any) -> bool:
    """Whether a part of a parsed statement, and all parts inside it, can leave nothing."""
    if isinstance(node, list):
        return all(map(_is_traceless, node))
    if not isinstance(node, dict):
        return True
    kind = node.get("class", node.get("type"))
    # The type of a constant is an object, which has parts of its own.
    if isinstance(kind, str) and kind not in KINDS:
        return False
    return node.get("function_name", "+") in FUNCTIONS and all(map(_is_traceless, node.values()))
