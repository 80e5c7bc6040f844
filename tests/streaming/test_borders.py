"""What starts at once because nothing it imports loads a broker's client or Spark."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

LIGHT = ("contract", "settings", "process", "ports", "intake", "cli")
HEAVY = {"kafka", "pulsar", "pyspark", "py4j"}


@pytest.mark.parametrize("package", LIGHT)
def test_a_light_package_loads_neither_a_brokers_client_nor_spark(package: str) -> None:
    path = import_module(f"streaming.{package}").__path__
    modules = [f"streaming.{package}.{each.name}" for each in pkgutil.iter_modules(path)]
    assert modules
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(json.loads(done.stdout))
