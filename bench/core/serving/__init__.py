"""Subscribers and askers beside a running join: ``python -m bench serving --minutes 10``.

A join of two streams writes into a store, and a service answers questions to this store. First the join runs
alone, and then beside subscribers, who get each snapshot, and askers, who ask for the results of a key once a
second. The report says how long questions and epochs take, and how much memory the service takes.
"""
