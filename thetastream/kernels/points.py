"""Kernels that compare points on a sphere by their distance."""

import math

from thetastream.kernels.compiling import Floats, Int64s, Singles, jit


@jit
def score_points(x: Floats, y: Floats, scores: Singles) -> None:
    """Write the negative square of the length between x[p] and y[s]."""
    for p in range(len(x)):
        for s in range(len(y)):
            scores[p, s] = -add_square(x, p, y, s)


@jit
def select_points(
    x: Floats,
    y: Floats,
    first: Int64s,
    last: Int64s,
    most: float,
    cursor: Int64s,
    out_row: Int64s,
    out_column: Int64s,
) -> int:
    """Write the places (p, s) of points in [first[p], last[p]) whose squared distance is at most ``most``;
    return their number.

    ``cursor`` and the buffers are those of ``select``.
    """
    n = 0
    column = cursor[1]
    for p in range(cursor[0], len(x)):
        for s in range(max(column, first[p]), last[p]):
            if add_square(x, p, y, s) > most:
                continue
            if n == len(out_row):
                cursor[0], cursor[1] = p, s
                return n
            out_row[n] = p
            out_column[n] = s
            n += 1
        column = 0
    cursor[0] = len(x)
    return n


@jit
def add_square(x: Floats, p: int, y: Floats, s: int) -> float:
    """Return the squared distance of two points, as Spark adds it up."""
    square = 0.0
    for axis in range(x.shape[1]):
        difference = x[p, axis] - y[s, axis]
        square += difference * difference
    return square


@jit
def measure_metres(x: Floats, y: Floats, diameter: float, values: Floats) -> None:
    """Write the distance on a sphere of each pair of points on the unit sphere."""
    for p in range(len(values)):
        square = add_square(x, p, y, p)
        values[p] = diameter * find_arcsine(1.0 if square > 4.0 else math.sqrt(square) / 2.0)


@jit
def find_arcsine(x: float) -> float:
    """Return the arcsine of a number from 0 to 1, as Java does.

    It is the algorithm of fdlibm (Sun Microsystems, 1993): a rational function R(t) of t = x^2 below 0.5, and
    pi/2 - 2 arcsin(sqrt((1 - x) / 2)) above. Some constants have a second part for more digits.
    """
    half_pi, half_pi_rest, quarter_pi = (
        1.57079632679489655800e00,
        6.12323399573676603587e-17,
        7.85398163397448278999e-01,
    )
    if x >= 1.0:
        return x * half_pi + x * half_pi_rest
    if x < 0.5:
        if x < 2.0**-27:
            return x
        t = x * x
    else:
        t = (1.0 - x) * 0.5
    p = 7.91534994289814532176e-04 + t * 3.47933107596021167570e-05
    p = 2.01212532134862925881e-01 + t * (-4.00555345006794114027e-02 + t * p)
    p = t * (1.66666666666666657415e-01 + t * (-3.25565818622400915405e-01 + t * p))
    q = -6.88283971605453293030e-01 + t * 7.70381505559019352791e-02
    q = 1.0 + t * (-2.40339491173441421878e00 + t * (2.02094576023350569471e00 + t * q))
    if x < 0.5:
        return x + x * (p / q)
    s = math.sqrt(t)
    if x >= 0.97499990463256836:  # 0.975 in 32 bits
        return half_pi - (2.0 * (s + s * (p / q)) - half_pi_rest)
    fraction, exponent = math.frexp(s)
    w = math.ldexp(math.floor(fraction * 2.0**21) / 2.0**21, exponent)  # the first 21 bits
    c = (t - w * w) / (s + w)
    rest = 2.0 * s * (p / q) - (half_pi_rest - 2.0 * c)
    return quarter_pi - (rest - (quarter_pi - 2.0 * w))
