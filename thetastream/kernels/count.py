"""Count equal keys in a hash table with open addressing."""

from thetastream.kernels.jit import Int64s, jit


@jit
def count_equal(keys: Int64s, known: Int64s, counts: Int64s, before: Int64s) -> int:
    """Write how many equal keys came before each key, and count the keys; return the number of new keys.

    ``known`` and ``counts`` are the table. Their length is a power of two, and more than the keys that they
    get. ``counts`` is 0 where the table is empty. Keys must be well mixed, because their low bits choose the
    place.
    """
    mask = len(known) - 1
    n_new = 0
    for i in range(len(keys)):
        key = keys[i]
        at = key & mask
        while counts[at] != 0 and known[at] != key:
            at = (at + 1) & mask
        if counts[at] == 0:
            known[at] = key
            n_new += 1
        before[i] = counts[at]
        counts[at] += 1
    return n_new


@jit
def refill(known: Int64s, counts: Int64s, to_known: Int64s, to_counts: Int64s) -> None:
    """Move the keys of a table into a larger one, which is empty."""
    mask = len(to_known) - 1
    for place in range(len(known)):
        if counts[place] != 0:
            at = known[place] & mask
            while to_counts[at] != 0:
                at = (at + 1) & mask
            to_known[at] = known[place]
            to_counts[at] = counts[place]
