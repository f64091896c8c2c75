"""# SplitJoin's figures, drawn again

`python -m bench splitjoin` measures the figures of SplitJoin (Najafi, Sadoghi and Jacobsen, USENIX ATC 2016)
anew, with Thetastream's `Split`, and writes this page. Shapes and ratios can be compared, and absolute
numbers cannot: the paper had many cores, and this is one machine of two. Claims are in our words and say the
shape only.

k cores get every tuple and store a k-th of each window. The paper's cores compare a tuple with all of their
part of the window, so that the work of a tuple falls with k. `index="scan"` is that nested loop; our default
is an index, which is less work by orders of magnitude, of which the cores share only the storing and the
results. The join is the two-dimensional band of the paper's evaluation; the number of results of every
measurement is compared with DuckDB's.

Figures 12 (with the handshake join beside it), 13, 15, 16 and 18 replay the paper's own settings in one
process, scaled by the rule of `bench/papers/splitjoin/staged_replay.py`: 4, 12 and 28 cores, windows of 5, 10
and 15 minutes, each a 256th of the paper's, the nested loop, and outer order. They measure the CPU time of
each stage. Spark's exchange is not in it.

What cores of their own would allow is measured in one process: tuples divided by the CPU seconds of the
busiest core. Throughput and latency are those of whole queries in Spark, from files to the noop sink,
settings in turn. **On two cores more than two units cannot be faster than two.** The machine is shared: the
load average before the runs is given with each figure (the runs themselves make it about 2); where it is
higher, rates are too low and noisy, and CPU time per tuple is the steadier figure.
"""

FIGURES = (
    "splitjoin_cores_bound",
    "splitjoin_baseline",
    "splitjoin_visiting",
    "splitjoin_stages",
    "splitjoin_count_throughput",
    "splitjoin_count_latency",
    "splitjoin_throughput",
    "splitjoin_selectivity",
    "splitjoin_ordering",
    "splitjoin_latency",
)
QUICK_SCALE = 0.02
