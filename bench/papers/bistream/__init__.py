"""# BiStream's figures, drawn again

`python -m bench bistream` measures the figures of BiStream (Lin, Ooi, Wang and Yu, SIGMOD 2015) anew, with
Thetastream's models, and writes this page. Shapes and ratios can be compared, and absolute numbers cannot:
the paper had clusters, and this is one machine of two cores. Claims are in our words and say the shape only.

JM is `Matrix`, JB is `Biclique` with random routing, JB-CRy is `Biclique` with ContRand routing and y
subgroups a side; "pure hash" has as many subgroups as units. The number of results of every measurement is
compared with DuckDB's.

Q5 and Q7 are the most expensive joins of those TPC-H queries: suppliers of a region (Q5) or of two nations
(Q7) with lineitem on suppkey. The joins before them are computed first. Band is lineitem by truck with
quantity above 48 against lineitem without shipping instructions, orderkeys at most 1 apart. Conditions on one
table filter first, so the two streams of a query have very different lengths. handshake is the
two-dimensional band of SplitJoin's evaluation, with streams of equal length.

Memory, bandwidth and load are counters of units run in one process, exact and repeatable. Throughput and
latency are those of whole queries in Spark, from files to the noop sink, settings in turn. **On two cores
more than two units cannot be faster than two**, so some figures also show CPU time per tuple, and
what the busiest unit would allow if each unit had a core: tuples divided by the CPU seconds of that unit, in
one process, without Spark.

The machine is shared. The load average before the runs is given with each figure (the runs themselves make it
about 2); where it is higher, other work took its part of the two cores, rates are too low and noisy, and CPU
time per tuple is the steadier figure.
"""

FIGURES = (
    "memory_by_volume",
    "memory_by_window",
    "bandwidth_by_rate",
    "copies_by_units",
    "throughput_by_setting",
    "throughput_when_full",
    "latency_distribution",
    "skew_load",
    "skew_throughput",
    "skew_bound",
    "capacity_by_units",
    "capacity_by_scheme",
    "longest_window",
    "scaling",
    "aggregate_throughput",
    "aggregate_bandwidth",
    "cost_by_size",
)
QUICK_SCALE = 0.02
