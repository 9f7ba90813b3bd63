# make run     tune the Williams-Otto reactor for one episode; figures and a summary in runs/episode
# make test    all tests, the formatter, the linter and the type checker
# Longer runs: make reproduce, make suite, make rates, make bench, make torture, make search-check

PYTHON ?= python3
export OPENBLAS_NUM_THREADS = 1
export OMP_NUM_THREADS = 1

BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint check tools reproduce suite rates bench torture search-check clean

run: .make/experiments
	$(BIN)/pdcbo run williams-otto --out runs/episode

test: .make/test tools lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .make/test
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy

tools:
	bash scripts/install-test-tools.sh

reproduce: .make/experiments
	$(BIN)/pdcbo reproduce all --seeds 50 --out runs/reproduction

suite: .make/experiments
	$(BIN)/pdcbo suite --seeds 50 --out runs/suite

rates: .make/experiments
	$(BIN)/pdcbo rates --out runs/rates

torture: .make/test tools
	$(BIN)/python -m tests.torture.run

search-check: .make/test
	PDCBO_SEARCH_POSTERIORS=100 $(BIN)/python -m pytest tests/test_search.py -k ten_dim -s

# The stacks that pdcbo is timed against live in an environment of their own.
bench: .make/bench
	.venv-bench/bin/pdcbo bench --out runs/bench

.make/venv: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	mkdir -p .make && touch $@

.make/experiments: .make/venv pyproject.toml
	$(PIP) --editable ".[experiments]"
	touch $@

.make/test: .make/venv pyproject.toml
	$(PIP) --editable ".[experiments,service,test]"
	touch $@ .make/experiments

.make/bench: pyproject.toml
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet scikit-learn botorch gpflow tf-keras GPy --editable ".[experiments]"
	mkdir -p .make && touch $@

clean:
	rm -rf .venv .venv-bench .make runs
