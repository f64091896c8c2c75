"""Settings under which Spark interprets expressions in place of compiling them.

Queries of tests have few rows, and compiling their code takes a quarter of the CPU time of the JVM. The sweep
and the processes that tests start compile it, as sessions of users do.
"""

import os

VARIABLE = "THETASTREAM_COMPILED"
"""An environment variable that is set where sessions of tests compile expressions."""

INTERPRETED: dict[str, str | bool] = (
    {}
    if VARIABLE in os.environ
    else {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
)
