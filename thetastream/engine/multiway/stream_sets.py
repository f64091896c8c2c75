"""Sets of streams as bit sets, hop orders, and keys of hops."""

HopOrder = tuple[int, ...]
"""The other streams, in the order in which a tuple visits them."""
HopKey = tuple[int, int]
"""The members of a hop as a bit set, and its target."""


def list_streams(streams: int) -> list[int]:
    """List the streams of a bit set.

    >>> list_streams(0b1010)
    [1, 3]
    """
    return [stream for stream in range(streams.bit_length()) if streams >> stream & 1]
