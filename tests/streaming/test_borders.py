"""Light packages start at once: nothing they import loads a broker's client, Spark, or the code that decides."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

LIGHT = ("contract", "settings", "process", "transport", "cli")
HEAVY = {"kafka", "pulsar", "pyspark", "py4j"}


@pytest.mark.parametrize("package", LIGHT)
def test_a_light_package_loads_neither_a_brokers_client_nor_spark(package: str) -> None:
    path = import_module(f"streaming.{package}").__path__
    modules = [f"streaming.{package}.{each.name}" for each in pkgutil.iter_modules(path)]
    assert modules
    assert not HEAVY & _loaded(*modules)


def test_what_spark_loads_at_each_start_of_the_query_loads_nothing_that_decides() -> None:
    assert not {"numpy", "pydantic", "re2", "state.controller", *HEAVY - {"pyspark", "py4j"}} & _loaded(
        "streaming.spark.operator"
    )


def _loaded(*modules: str) -> set[str]:
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))
