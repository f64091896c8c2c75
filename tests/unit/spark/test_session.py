"""Session settings: ``configure`` sets them, and ``check_session`` reports settings that are wrong."""

import os
import warnings
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from thetastream.results.writer import PARTITIONS
from thetastream.spark.session import configure as settings
from thetastream.spark.session.configure import check_session


@pytest.fixture(autouse=True)
def without_workers(monkeypatch):
    """Sessions here are no sessions of Spark, so they have no workers to check."""
    monkeypatch.setattr(settings, "check_workers", lambda spark: None)


class Conf(dict):
    """Stands for ``spark.conf``, the only part of a session that Spark Connect always has."""

    def set(self, key, value):
        self[key] = value


def bare(**conf):
    return SimpleNamespace(conf=Conf({"spark.master": "local[3]", **conf}))


def conditions(spark, units):
    return [error.condition for error in check_session(spark, units)]


def test_configure_returns_the_session_and_leaves_nothing_to_complain_about():
    spark = bare()
    with pytest.warns(th.errors.ManyPartitionsWarning, match="it is 200"):
        assert conditions(spark, 2) == [
            "STATE_STORE_PROVIDER",
            "CHANGELOG_CHECKPOINTING",
            "CHECKPOINT_FORMAT",
        ]
    assert th.configure(spark) is spark
    assert spark.conf[PARTITIONS] == "3"
    assert check_session(spark, 2) == []


def test_partitions_given_win():
    assert th.configure(bare(), partitions=7).conf[PARTITIONS] == "7"
    with pytest.raises(th.errors.SessionError, match=r"partitions \(0\) must be an integer of at least 1"):
        th.configure(bare(), partitions=0)


def test_messages_name_the_key_its_value_and_the_way_out():
    spark = bare(**{settings.PROVIDER: "com.example.Mine", settings.CHANGELOG: "false"})
    for error, key, value in zip(
        check_session(spark, 100),
        (settings.PROVIDER, settings.CHANGELOG, settings.CHECKPOINT_FORMAT),
        ("com.example.Mine", "it is false", "it is 1"),
        strict=True,
    ):
        assert isinstance(error, th.errors.SessionError)
        assert key in str(error)
        assert value in str(error)
        assert "th.configure(spark)" in str(error)


@pytest.mark.parametrize(("partitions", "units", "is_many"), [(8, 2, False), (9, 2, True), (200, 50, False)])
def test_partitions_per_unit(partitions, units, is_many):
    spark = th.configure(bare(), partitions=partitions)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert check_session(spark, units) == []
    assert [warning.category for warning in caught] == [th.errors.ManyPartitionsWarning] * is_many
    assert all(f"partitions={4 * units})" in str(warning.message) for warning in caught)


def test_configure_builder():
    builder = SparkSession.builder.config(settings.JAVA_OPTIONS, "-Dmine=1")
    assert th.configure(builder) is builder
    options = builder._options
    assert options[settings.PROVIDER] == settings.ROCKSDB
    assert options[PARTITIONS] == str(os.cpu_count())
    assert options[settings.JAVA_OPTIONS] == "-Dmine=1 -Xss8m"
    th.configure(builder, partitions=5)
    assert options[settings.JAVA_OPTIONS] == "-Dmine=1 -Xss8m"
    assert options[PARTITIONS] == "5"


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({}, {}, settings.WITH_FEW_PROCESSES),
        ({}, {settings.CHECKPOINT_FILES: "mine"}, "mine"),
        ({}, {"spark.master": "yarn"}, None),
        ({"PYSPARK_SUBMIT_ARGS": f"--conf {settings.CHECKPOINT_FILES}=mine pyspark-shell"}, {}, None),
        (
            {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"},
            {},
            settings.WITH_FEW_PROCESSES,
        ),
        ({"SPARK_CONF_DIR": "conf"}, {}, None),
        ({"SPARK_CONF_DIR": "empty"}, {}, settings.WITH_FEW_PROCESSES),
        ({"SPARK_HOME": "."}, {}, None),
        ({"PYSPARK_GATEWAY_PORT": "1"}, {}, None),
    ],
)
def test_how_files_of_checkpoints_are_written_unless_somebody_chose_it(
    monkeypatch, tmp_path, environment, options, expected
):
    """Options of a builder take precedence over ``spark-defaults.conf``: the choice in this file was lost."""
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"{settings.CHECKPOINT_FILES}  mine\n")
    builder = SparkSession.builder.master("local[1]")
    for key, value in options.items():
        builder.config(key, value)
    assert th.configure(builder)._options.get(settings.CHECKPOINT_FILES) == expected


def test_a_remote_builder_gets_no_java_options():
    builder = th.configure(SparkSession.builder.config("spark.remote", "sc://localhost"))
    assert settings.JAVA_OPTIONS not in builder._options
