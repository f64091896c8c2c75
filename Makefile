# make demo   real data through a streaming join, in a few minutes
# make examples   six more: microphones, aircraft, trades and quotes, news, persons, images
# make test   the test suite        make test-core   what needs no Spark        make sweep  the long tests
# make test-kafka   jobs between the topics of a Kafka broker, which Maven fetches
# make test-s3   folders on an object store        make test-hdfs  folders on HDFS, which Maven fetches
# make demo-kafka   two topics of a broker joined into a third
# make test-stores   stores of results in PostgreSQL, Cassandra and HBase, which Maven fetches
# make lint   ruff, mypy, imports, bandit        make audit  known vulnerabilities of packages that the wheel needs
# make docs   the documentation as a site, in out/site; runs the code on its pages
# make dist   a wheel and a source archive, checked, and tried in an environment of their own
# make bench  measurements (ARGS="equi --json out.json")
# make bench-peers   the same with Flink, Pathway and DataFusion, in a virtual environment of their own
# make papers   the figures of the four papers, measured and drawn again (hours; it goes on where it stopped)
# make soak   days in an hour, with restarts (ARGS="--minutes 3 --restart-seconds 60" for a short one)
# make faults   1,000 faults of processes, disks and files that strike running queries and services (hours; it goes on where it stopped)
# make damages  500 damages of each kind of file: segments, messages, control files, stores, checkpoints (hours; it goes on)
# make test PYSPARK=4.2.*   the tests with another version of PySpark, in a virtual environment of its own;
#                           make smoke runs those that depend on the version
# Needs Python 3.11 to 3.13 with venv, Java 17 or later; everything else goes into .venv.

.DEFAULT_GOAL := help
.PHONY: help demo examples test test-core smoke sweep test-kafka test-s3 test-hdfs test-stores demo-kafka lint audit docs dist bench bench-peers papers soak faults damages machine clean
PYSPARK ?=
VENV := .venv$(if $(PYSPARK),-pyspark-$(subst *,x,$(PYSPARK)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# uv installs faster, where somebody has installed it. pip compiles all byte code with one core, so it leaves that out:
# the first import of a module compiles it.
INSTALL := $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,$(PIP) install --no-compile)
PIN := $(if $(PYSPARK),"pyspark==$(PYSPARK)")
ARGS ?=
# Queries start Python processes, which load the package from its byte code.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= 2

help:
	@sed -n '/^$$/q;s/^# //p' Makefile

demo: machine $(VENV)/.demo
	@$(BIN)/thetastream demo $(ARGS)

# The JVM's and the workers' own words go to a file: between results they only confuse.
examples: machine $(VENV)/.demo
	@mkdir -p out
	@for example in sensors separation trades news persons images; do \
		echo "== examples/$$example.py"; \
		$(BIN)/python examples/$$example.py 2>out/$$example.log || { tail -n 20 out/$$example.log; exit 1; }; \
	done

# Tests run in WORKERS processes, each with a Spark session of its own when it needs one (about 1.5 GB). All tests of a
# file run in one of them. The summary lists the slowest tests.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=3

test: machine $(VENV)/.dev $(VENV)/.java-classes
	@echo "Leaving out the long tests (make sweep), the code of the documentation (make docs), and what needs Maven (make test-kafka, make test-s3, make test-hdfs, make test-stores)."
	@$(PYTEST) -m "not slow and not snippets and not kafka and not s3 and not hdfs and not databases" $(ARGS)

test-core: machine $(VENV)/.dev
	@$(PYTEST) -m "not slow and not spark and not snippets and not kafka and not s3 and not hdfs and not databases" $(ARGS)

# What depends on the version of PySpark: operators, timers, sources, Connect, Columns, errors of Catalyst.
SMOKE = $(addprefix tests/spark/test_,python_api.py idle.py connect.py stateful_inputs.py chain_stream.py plan_errors.py printed.py)

# Writing the archive of classes takes longer than these tests save by it.
smoke: machine $(VENV)/.dev
	@THETASTREAM_COMPILED=1 $(PYTEST) -m "not slow" $(SMOKE) $(ARGS)

# The long tests and the cases that sampled tests leave out, then the tests that draw random cases, twenty times as many.
# Hours; with ARGS="--passed out/sweep.txt" it goes on where it stopped.
sweep: machine $(VENV)/.dev $(VENV)/.java-classes
	@THETASTREAM_COMPILED=1 $(PYTEST) -p tests.support.passed_tests -m "slow and not kafka and not s3 and not hdfs and not databases" $(ARGS)
	@THETASTREAM_COMPILED=1 THETASTREAM_DRAWS=20 $(PYTEST) -p tests.support.passed_tests -m "drawn and not slow" $(ARGS)

# Maven fetches the broker and the connector into out/kafka, with the settings of the user.
test-kafka: machine $(VENV)/.dev
	@$(INSTALL) -e ".[kafka-client]"
	@$(BIN)/python -m pytest -m kafka $(ARGS)

# The jars of hadoop-aws have 650 MB.
test-s3: machine $(VENV)/.dev
	@$(INSTALL) -e ".[s3-server]"
	@$(BIN)/python -m pytest -m "s3 and not slow" $(ARGS)

# The jars of Hadoop's cluster for tests have 100 MB.
test-hdfs: machine $(VENV)/.dev
	@$(BIN)/python -m pytest -m hdfs $(ARGS)

# PostgreSQL comes from the system. The jars of Cassandra and HBase have 180 MB, and their servers run at the same time.
# ARGS="-m slow" kills a writer a hundred times for each store.
test-stores: machine $(VENV)/.dev
	@$(INSTALL) -e ".[cassandra,hbase]"
	@$(BIN)/python -m pytest -m "not slow and not s3" tests/stores $(ARGS)

demo-kafka: machine $(VENV)/.demo
	@$(BIN)/python -m tests.kafka.demo

lint: machine $(VENV)/.dev
	@status=0; \
	for check in "ruff check ." "ruff format --check ." mypy lint-imports "bandit -q -r thetastream -c pyproject.toml" "hadolint ops/Dockerfile"; do \
		$(BIN)/$$check || status=1; \
	done; exit $$status

# Known vulnerabilities of the packages that the wheel needs. Packages on which the index has no data are listed.
audit: machine $(VENV)/.dev
	@$(PIP) install "pip-audit>=2.7"
	@$(BIN)/python .ci/audit.py

# The site, and all code on its pages, which must run and print what the pages show.
docs: machine $(VENV)/.docs $(VENV)/.dev $(VENV)/.java-classes
# --strict counts the warnings that are logged, and --quiet would log none.
	@mkdir -p out
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict 2>out/docs.log || { grep -v INFO out/docs.log; exit 1; }
	@echo "out/site/index.html"
	@$(BIN)/python -m pytest -n $(WORKERS) -m snippets $(ARGS)

# The wheel is built from the source archive, so trying the wheel tries both.
dist: machine
	@rm -rf out/dist
	@python=$$(.ci/machine) && "$$python" -m venv out/dist/tools
	@out/dist/tools/bin/python -m pip --disable-pip-version-check --quiet install "build>=1.2" "twine>=6"
	@out/dist/tools/bin/python -m build --outdir out/dist/files . >out/dist/build.log || { cat out/dist/build.log; exit 1; }
	@out/dist/tools/bin/python -m twine check --strict out/dist/files/*
	@out/dist/tools/bin/python .ci/try_dist.py out/dist/files/*.whl out/dist/env $(ARGS)

papers: machine $(VENV)/.dev
	@$(BIN)/python -m bench figures --resume $(ARGS)

bench: machine $(VENV)/.dev
	@$(BIN)/python -m bench $(or $(ARGS),handshake)

bench-peers: machine $(VENV)/.dev .venv-peers/.installed
	@$(BIN)/python -m bench $(or $(ARGS),handshake) --engines thetastream,spark,duckdb,flink,pathway,datafusion

soak: machine $(VENV)/.dev
	@$(BIN)/python -m bench soak $(or $(ARGS),--minutes 60)

faults: machine $(VENV)/.dev $(VENV)/.java-classes
	@$(BIN)/python -m tests.support.campaign out/faults $(ARGS)

damages: machine $(VENV)/.dev $(VENV)/.java-classes
	@$(BIN)/python -m tests.support.damages out/damages $(ARGS)

machine:
	@.ci/machine >/dev/null

# A stamp is as new as the metadata it was installed from. The development set includes the demo's.
$(VENV)/.demo: pyproject.toml
	@echo "Installing into $(VENV) (once, some minutes: Spark is 400 MB)"
	@python=$$(.ci/machine) && { [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	@$(INSTALL) -e ".[demo,serve]" $(PIN)
	@touch $@

$(VENV)/.dev: pyproject.toml
	@echo "Installing into $(VENV) (once, some minutes: Spark is 400 MB)"
	@python=$$(.ci/machine) && { [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	@$(INSTALL) -e ".[dev]" $(PIN)
	@touch $(VENV)/.demo $@

# Tests run without the archive too, but each of their JVMs then takes many seconds longer to start.
$(VENV)/.java-classes: $(VENV)/.dev
	@echo "Archiving the classes of Spark for the JVMs of the tests (once, about a minute)"
	@$(BIN)/python -m tests.support.jvm || echo "There is no archive of classes: the tests start more slowly."
	@touch $@

$(VENV)/.docs: pyproject.toml
	@echo "Installing the documentation tools into $(VENV)"
	@python=$$(.ci/machine) && { [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	@$(INSTALL) -e ".[docs]"
	@touch $@

# Maven fetches what Flink needs to read Parquet, in the version of Flink.
.venv-peers/.installed: bench/peers/requirements.txt
	@echo "Installing Flink, Pathway and DataFusion into .venv-peers (once, some minutes: 2 GB)"
	@python=$$(.ci/machine) && { [ -x .venv-peers/bin/python ] || "$$python" -m venv .venv-peers; }
	@.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@version=$$(.venv-peers/bin/python -c 'from importlib.metadata import version; print(version("apache-flink"))') \
		&& mvn -q -B dependency:copy -Dartifact=org.apache.flink:flink-sql-parquet:$$version -DoutputDirectory=$(CURDIR)/out/peers
	@touch $@

clean:
	rm -rf .venv .venv-peers .venv-pyspark-* out build dist .pytest_cache .mypy_cache .ruff_cache
