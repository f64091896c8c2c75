"""The models that BiStream compares: JM, the join-matrix, and JB, the join-biclique.

There are p units; the biclique has half of them on each side, in y subgroups. Copies sent of a tuple:

    B_mat(a x b)    b of a left tuple, a of a right one          sqrt(p) if square
    B_bi(y)         1 to store it, p / (2 y) to probe            random routing: y = 1, pure hash: y = p / 2
"""

from bench.core.internals import Model
from bench.core.query import Query
from thetastream.models import Biclique, Matrix

UNITS = 16


def shapes(units: int) -> list[tuple[int, int]]:
    """List all shapes of a matrix of so many units.

    >>> shapes(4)
    [(1, 4), (2, 2), (4, 1)]
    """
    return [(rows, units // rows) for rows in range(1, units + 1) if units % rows == 0]


def square(units: int) -> Matrix:
    """Make the square matrix, which needs no knowledge of the streams."""
    return Matrix(round(units**0.5), round(units**0.5))


def best_matrix(query: Query, units: int) -> Matrix:
    """Choose the shape that stores the fewest copies of streams of these sizes."""
    left, right = (table.num_rows for table in query.tables)
    return Matrix(*min(shapes(units), key=lambda shape: shape[1] * left + shape[0] * right))


def best_biclique(query: Query, units: int) -> Biclique:
    """Divide the units among the sides in proportion to the streams, so that the largest unit holds less."""
    left, right = (table.num_rows for table in query.tables)
    mine = min(units - 1, max(1, round(units * left / (left + right))))
    return Biclique((mine, units - mine))


def in_spark(query: Query) -> dict[str, Model]:
    """Return the models that can run a query. ContRand needs an equality."""
    found = {
        "JM, square": square(UNITS),
        "JM, best shape": best_matrix(query, UNITS),
        "JB (random)": Biclique(UNITS // 2),
    }
    return found | ({"JB-CR4": Biclique(UNITS // 2, subgroups=4)} if query.equalities else {})


def by_copies(units: int) -> dict[str, tuple[Model, float]]:
    """Return models of so many units with the copies of the formula, for streams of equal length."""
    found: dict[str, tuple[Model, float]] = {"JM, square": (square(units), units**0.5)}
    for y in (1, 2, 4, 8):
        if y <= units // 2:
            name = "JB (random)" if y == 1 else f"JB-CR{y}"
            found[name] = Biclique(units // 2, subgroups=y), 1 + units / 2 / y
    return found


def by_size(units: int) -> dict[str, Model]:
    """Return JM and JB of so many units. If the number is odd, the left side has one more."""
    return {"JM, square": square(units), "JB": Biclique((units - units // 2, units // 2))}
