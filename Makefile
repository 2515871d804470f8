# make demo     train on one and on two nodes of this machine, print both side by side
# make test     everything: lint, types, all tests; builds Horovod the first time
# make fast     the quick tests
# make horovod  build Horovod into the environment, from a cached wheel the second time
# make lint     ruff and mypy
# make bench    the project's own benchmarks
# make clean    remove what these made; the cached Horovod wheel stays
#
# PYTHON names the interpreter of the environment: make demo PYTHON=python3.12
# WORKERS is how many tests run at once: most of them wait for processes, and a few train

PYTHON ?= python3
WORKERS ?= 4
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test fast horovod lint bench clean

demo: $(VENV)/demo-ready
	CLOUDBENCH_HOME=.cache/demo $(BIN)/cloudbench run examples/local/scaling.yaml

test: $(VENV)/test-ready lint
	$(BIN)/pytest --numprocesses $(WORKERS)

fast: $(VENV)/dev-ready
	$(BIN)/pytest --numprocesses $(WORKERS) -m 'not slow'

horovod: $(VENV)/demo-ready
	scripts/build-horovod $(BIN)/python

lint: $(VENV)/dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/test-ready
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" || exit; done

clean:
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo 'cloudbench needs Python 3.10 or later; name one: make PYTHON=python3.12' >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	    echo 'This Python cannot make environments yet: apt-get install python3-venv' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# Each stamp holds an environment with more in it; all of them are the same folder.
$(VENV)/demo-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[workloads]'
	touch $@

$(VENV)/dev-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,docker,workloads]'
	touch $@

$(VENV)/test-ready: $(VENV)/dev-ready scripts/build-horovod
	scripts/build-horovod $(BIN)/python
	touch $@
