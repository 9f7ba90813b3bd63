# make run     tune the Williams-Otto reactor for one episode; figures and a summary in runs/episode
# make test    all tests, the formatter, the linter and the type checker
# Longer runs: make reproduce, make results, make frontier, make suite, make models, make horizons, make rates, make bench, make torture, make search-check

PYTHON ?= python3
export OPENBLAS_NUM_THREADS = 1
export OMP_NUM_THREADS = 1

BIN = .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint check tools reproduce results frontier suite models horizons rates bench torture search-check clean

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
	$(BIN)/pdcbo reproduce all --seeds 50 --extras --out docs --data runs/reproduction

# all plants and optimizers, on seeds that no run was looked at on before the default's last change: two to three hours on
# two cores; what is stopped goes on where it was
SUITE_SEEDS = 50
suite: .make/experiments
	$(BIN)/pdcbo suite --seeds $(SUITE_SEEDS) --first-seed 8000 --out runs/results/suite

# what compressed values alone do, for the default and for the others, on the plants of the suite that have them
models: .make/experiments
	$(BIN)/pdcbo suite --seeds 50 --first-seed 1000 --out runs/results/models \
		--plants datacentre-cooling,machine-fatigue,pump-station \
		--optimizers "pdcbo,pdcbo without:pdcbo,cei,cei with:cei,safe-ucb:safeopt,safe-ucb with:safeopt" \
		--option "pdcbo without.compress=false" --option "cei with.compress=true" \
		--option "safe-ucb.ucb=true" --option "safe-ucb with.ucb=true" --option "safe-ucb with.compress=true"

THREE = --optimizers "pdcbo,cei,safe-ucb:safeopt" --option "safe-ucb.ucb=true"

# how the default does over 30, 60 and 2,000 steps, and over 2,000 without a planned end
horizons: .make/experiments
	$(BIN)/pdcbo suite --steps 30 --seeds 20 --first-seed 4000 --out runs/results/horizons-30 $(THREE)
	$(BIN)/pdcbo suite --steps 60 --seeds 20 --first-seed 4000 --out runs/results/horizons-60 $(THREE)
	$(BIN)/pdcbo suite --steps 2000 --seeds 8 --first-seed 4000 --out runs/results/horizons-2000 \
		--plants gp-1d,branin,datacentre-cooling,machine-fatigue \
		--optimizers "pdcbo,pdcbo without end:pdcbo,cei" --option "pdcbo without end.horizon=None"

KNOWN = {'kernel': 'squared-exponential', 'length_scales': 1.0, 'variance': 2.0, 'noise_var': 0.0025}
results: .make/experiments
	$(BIN)/pdcbo compare gp-sample --seeds 50 --first-seed 1000 --steps 500 --out runs/results/gp-sample \
		--optimizers "pdcbo,pdcbo known kernel:pdcbo,cei" \
		--option "pdcbo known kernel.models=$(KNOWN)"
	$(BIN)/pdcbo compare williams-otto --seeds 50 --first-seed 1000 --steps 300 --out runs/results/williams-otto \
		--optimizers "pdcbo,cei"
	$(BIN)/python scripts/results.py runs/results docs

frontier: .make/experiments
	$(BIN)/python scripts/frontier.py runs/results
	$(BIN)/python scripts/exploring.py runs/results

rates: .make/experiments
	$(BIN)/pdcbo rates --seeds 8 --out runs/rates

torture: .make/test tools
	nice $(BIN)/python tests/torture/run.py

search-check: .make/test
	PDCBO_SEARCH_POSTERIORS=100 $(BIN)/python -m pytest tests/test_search.py -k ten_dim -s

# The stacks that pdcbo is timed against live in environments of their own: GPy and GPflow want a NumPy older than 2.
bench: .make/bench
	.venv-bench/bin/pdcbo bench --out runs/bench \
		--python GPy=.venv-bench-gpy/bin/python --python GPflow=.venv-bench-gpflow/bin/python

.make/venv: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	mkdir -p .make && touch $@

.make/experiments: .make/venv pyproject.toml
	$(PIP) --editable ".[experiments]"
	touch $@

.make/test: .make/venv pyproject.toml
	$(PIP) --editable ".[experiments,service,test]"
	touch $@ .make/experiments

.make/bench: constraints.txt pyproject.toml
	for name in .venv-bench .venv-bench-gpy .venv-bench-gpflow; do \
		test -x $$name/bin/python || $(PYTHON) -m venv $$name || exit; done
	.venv-bench/bin/python -m pip install --quiet torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --constraint constraints.txt \
		scikit-learn botorch==0.18.1 --editable ".[experiments]"
	.venv-bench-gpy/bin/python -m pip install --quiet GPy==1.13.2 matplotlib --editable .
	.venv-bench-gpflow/bin/python -m pip install --quiet gpflow==2.11.2 tf-keras==2.21.0 --editable .
	mkdir -p .make && touch $@

# removes the environments and what make remembers of them; results, which took hours, stay in runs
clean:
	rm -rf .venv .venv-bench .venv-bench-gpy .venv-bench-gpflow .make
