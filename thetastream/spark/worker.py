"""Python workers at rest: what they load once and never look at again.

After every task Spark's worker runs ``gc.collect()``, which walks every object that NumPy, pandas,
Arrow and Numba made on import: 0.1 to 0.2 s, more than a small epoch's work. Frozen objects are not
walked.
"""

import gc
from functools import cache


@cache
def settle() -> None:
    """Freeze what is loaded; called at the start of a task, does something once per process."""
    gc.collect()
    gc.freeze()
