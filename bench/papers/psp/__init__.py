"""# The experiment of PSP, drawn again

`python -m bench psp` joins streams of images by a pixel difference, on the time-sliced ring (PSP: Wang,
Rundensteiner, Ganguly and Bhatnagar, EDBT 2009) and on the two that it was compared with, aligned and
coordinated tuple routing (ATR, CTR: Gu, Yu and Wang, ICDE 2007); in Spark also as a cascade of binary
bicliques, which stores intermediate results. Claims are in our words and say the shape of the paper's figure
8. The paper used a cluster of 20 machines; this is one machine of two cores.

Stream i is joined with stream i + 1 where the mean difference of pixels is below a threshold, which is the
quantile that gives the selectivity. All tuples of a result lie within one window. Arrivals are Poisson, a
tuple a second of each stream, in epochs of 12 seconds. A window has 48 tuples of a stream, and a run lasts
five windows; the paper's had 500 tuples and 60 windows, so our nested loops are a tenth as long. Numbers of
nodes, streams, pixels and copies, selectivities, and segments in windows are the paper's. Where nothing else
is said, ATR's segments are as long as the window, CTR's a sixth of it, on two nodes each, and there are four
nodes.

Copies, tuples, bytes, probes and epochs are counted in one process, exact and repeatable. The response time
of a result begins with the epoch of its last tuple and ends with the epoch in which it leaves. It is given in
epochs, and in milliseconds if each epoch takes as long as its busiest node on a core of its own. This leaves
out the exchange, the state store, and the half second that Spark needs for any epoch. The last figure
measures whole queries in Spark. Every number of results is compared with that of a nested loop in NumPy.
"""

FIGURES = (
    "ring_by_nodes",
    "atr_by_nodes",
    "ctr_by_nodes",
    "nodes_by_predicate_cost",
    "sent_by_nodes",
    "models_by_selectivity",
    "models_by_streams",
    "models_by_pixels",
    "response_when_arrivals_double",
    "response_in_spark",
)
QUICK_SCALE = 0.25
