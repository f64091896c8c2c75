"""# ESJ's experiments, drawn again

`python -m bench esj` measures what ESJ says of a scalable online join on the handshake chain (after the
handshake join: Teubner and Mueller, SIGMOD 2011): efficiency of indexes, the block that workers hand on, the
balance of their loads, and the latency that the chain has beside models with one exchange. Claims are in our
words and say the shape only; a cluster of theirs is one machine of two cores here.

The join is an equality of 16 keys and a band of a 256th of the values, so that every index can be forced on
it; a random pair matches with a probability of 1 / 4,099. Efficiency, rho, is matches per comparison.

All figures but the last are measured in one process. Counters are exact and repeatable. Times are the CPU
times of units, the least of several runs; they say what a core for each unit would allow. The letters of a
chain go through a mailbox on disk, as in Spark; the state store and the exchange are left out. The last
figure measures whole queries in Spark. The machine is shared: CPU times differ by a tenth from run to run,
and times in Spark by more.
"""

FIGURES = (
    "efficiency_by_window",
    "cost_by_block",
    "load_over_time",
    "loads_by_arrivals",
    "recall_by_shed",
    "latency_by_model",
)
QUICK_SCALE = 1 / 16
