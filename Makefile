# Sets up what is missing (Python packages in .venv, Java, jars in the user's cache) and runs the parts.
# Only the first call downloads. pip, Ivy, Maven and apt-get follow their own configuration.

SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
PACKAGES := $(VENV)/.packages
JARS := $(VENV)/.jars
PULSAR_JARS := $(VENV)/.jars-pulsar
CLASSES := $(VENV)/.classes.jsa
PULSAR_LOCK := deploy/local/locks/pulsar.lock
UV_COMPILE := $(PYTHON) -m uv pip compile pyproject.toml --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url --quiet
LOCKS := streaming/spark/locks/spark-connector.lock deploy/local/locks/kafka.lock

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Spark starts Python again and again: what is compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-pulsar watch test test-slow check faults compare mutate bench docs locks clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(JARS) ## A real Kafka, a small fleet and trimtab balancing it, live in the terminal (Ctrl-C ends it); STANDBY=1: two, and one is killed
	@$(PYTHON) -m deploy.local.demo $(if $(STANDBY),--standby)

demo-pulsar: $(JARS) $(PULSAR_JARS) ## A real, small Pulsar cluster with traffic, and trimtab collecting, deciding and acting (Ctrl-C ends it); EXTENSIBLE=1: with the extensible load manager
	@$(PYTHON) -m deploy.local.demo --pulsar $(if $(EXTENSIBLE),--extensible)

watch: $(PACKAGES) ## A Prometheus, and a Grafana where one is installed, looking at a running demo (or: deploy/compose.yaml)
	@$(PYTHON) -m deploy.local.watch

test: check $(JARS) $(PULSAR_JARS) $(CLASSES) ## Every check and test but the long ones
	$(PYTHON) -m pytest -q -n 4 --dist loadgroup -m "not slow" --durations=10

test-slow: $(JARS) $(PULSAR_JARS) $(CLASSES) ## Long soaks and full crash grids
	$(PYTHON) -m pytest -q -m slow

check: $(PACKAGES) ## Lint, format, types, layers, generated docs up to date
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m deploy.docs --check
	$(PYTHON) -m deploy.grafana --check
	$(PYTHON) -m deploy.helm --check
	$(VENV)/bin/hadolint deploy/container/Containerfile
	$(VENV)/bin/shellcheck deploy/container/entrypoint.sh

faults: $(JARS) $(PULSAR_JARS) $(CLASSES) ## Fault schedules on real brokers, results in tests/faults/results.tsv
	$(PYTHON) -m tests.faults --system kafka --seeds 1-150
	$(PYTHON) -m tests.faults --system pulsar --seeds 1-60
	$(PYTHON) -m tests.faults --system kafka --failovers 10 --seeds 1-10
	$(PYTHON) -m tests.faults --system pulsar --failovers 10 --seeds 1-5

compare: $(JARS) $(PULSAR_JARS) ## Balancers side by side on a real Pulsar, all runs that have no row yet (ONLY=SCENARIO/BALANCER/SEED: one); needs root
	$(PYTHON) -m tests.compare $(if $(ONLY),--again --only $(ONLY))
	$(PYTHON) -m tests.compare --page

mutate: $(PACKAGES) ## Mutants of state that its fast tests do not notice, of a random sample of 60
	$(PYTHON) -m tests.mutants

bench: $(JARS) $(PULSAR_JARS) ## Measure, and write docs/understand/benchmarks.md
	$(PYTHON) -m tests.bench

docs: $(PACKAGES) ## Write the generated documentation anew
	$(PYTHON) -m deploy.docs
	$(PYTHON) -m deploy.grafana
	$(PYTHON) -m deploy.helm

locks: $(PACKAGES) ## Write the locks of Python's packages anew: all of them, and those of the container
	$(UV_COMPILE) --group dev --output-file requirements.lock
	$(UV_COMPILE) --constraint requirements.lock --output-file deploy/container/runtime.lock

setup: $(JARS) ## Only set up: .venv, Java, jars

clean: ## Remove .venv, caches and build products of this folder
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf metastore_db spark-warehouse derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Spark puts pyspark and py4j as zips before the installed ones on its workers' path, and from a zip each of the ten processes of
# a start compiles them again, a second each.
#
# A name on the PATH may be a stub that runs nothing, so every candidate is asked. The first that is new enough and
# can make environments wins.
$(PACKAGES): requirements.lock pyproject.toml
	@chosen=; lame=; \
	for candidate in python3.11 python3.12 python3.13 python3; do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then chosen="$$candidate"; break; fi; \
	  lame="$$("$$candidate" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"; \
	done; \
	if [ -z "$$chosen" ] && [ -n "$$lame" ]; then \
	  echo "$$lame cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: sudo apt-get install $$lame-venv; then run make again." >&2; exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	  echo "Python 3.11 or newer is needed; none of python3.11, python3.12, python3.13, python3 on the PATH is." >&2; \
	  echo "On Debian and Ubuntu: sudo apt-get install python3 python3-venv; then run make again." >&2; exit 1; \
	fi; \
	echo "setting up $(VENV) with $$("$$chosen" --version), once, in a minute or two (pyspark alone is about 450 MB)"; \
	"$$chosen" -m venv $(VENV)
	@set -o pipefail; $(PYTHON) -m pip install --progress-bar off --require-hashes -r requirements.lock | $(PYTHON) -m deploy.local.packages requirements.lock
	@$(PYTHON) -m pip install --quiet --no-deps --editable .
	@rm -f $(VENV)/lib/python3*/site-packages/pyspark/python/lib/*.zip
	@touch $@

$(JARS): $(PACKAGES) $(LOCKS)
	@$(PYTHON) -m deploy.local.java
	@$(PYTHON) -m streaming.spark.jars $(LOCKS) >/dev/null
	@touch $@

$(PULSAR_JARS): $(JARS) $(PULSAR_LOCK)
	@$(PYTHON) -m streaming.spark.jars $(PULSAR_LOCK) >/dev/null
	@touch $@

$(CLASSES): $(JARS)
	@$(PYTHON) -m tests.live.classes $@
