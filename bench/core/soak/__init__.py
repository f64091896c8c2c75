"""Days in an hour: ``python -m bench soak --minutes 60`` runs a join, a chain and a ring side by side.

One second of the clock is one minute of event time. Three streams have bursts, pauses, a hot key that
wanders, disorder, and tuples that are a day late. The program is killed or stopped every few minutes and
started again. In the end, every answer is compared with DuckDB's over the same files, and the report says how
memory, descriptors, files, state and the time of an epoch grew.

    pairs, chain   { (a, b) : |a.x - b.x| <= 1, a.y > b.y, 10 minutes apart at most }
    ring           { (a, b, c) : a.x = b.x = c.x, a.y > c.y, 3 minutes apart at most }
"""
