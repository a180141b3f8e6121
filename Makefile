# Groupwise: `make setup` once (the other targets do it by themselves), then see the README.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.groupwise-setup

# Bytecode is kept in .venv, whatever the shell says: it is compiled once.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-rivals demo-loop test test-all golden fuzz check results lock docs bench

help:
	@echo "make setup     install everything into .venv"
	@echo "make demo      train and measure the demo into runs/demo; again to continue it"
	@echo "make demo-rivals  the demo beside best of 8 and rejection sampling, three seeds: hours"
	@echo "make demo-loop serve, correct on the page (needs Chromium), learn, promote: runs/demo-loop"
	@echo "make test      the tests that take seconds each"
	@echo "make test-all  the slow ones too"
	@echo "make golden    tiny runs by the commit BASE and by the sources here, to the byte; GOLDEN=name"
	@echo "make fuzz      parsers, verdicts, pictures and bodies of requests: a minute of odd ones each"
	@echo "make check     style, types and the layers"
	@echo "make results   tables of measured numbers in the pages, from benchmarks/results"
	@echo "make lock      lock-cpu.txt and lock-cpu-dev.txt from constraints.txt, with hashes"
	@echo "make docs      the documentation site into build/site; a broken link fails"
	@echo "make bench     the benchmarks"

setup: $(STAMP)

# The pip that comes with Python may be old and slow. It does not compile to bytecode: the first
# import does, and most modules are never imported. The stamp comes last: a setup that was
# interrupted starts again. With LOCKED=1 every file that pip takes has the hash of the lock.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
ifdef LOCKED
	$(BIN)/pip install --no-compile --no-deps --require-hashes -r lock-cpu-dev.txt
	$(BIN)/pip install --no-compile --no-deps --no-build-isolation -e .
else
	$(BIN)/pip install --no-compile -c constraints.txt --upgrade pip
	$(BIN)/pip install --no-compile -c constraints.txt -e '.[dev]'
endif
	$(BIN)/groupwise models fetch smollm2-135m-instruct || echo "go on without it: model.base also takes folders and hub ids"
	touch $(STAMP)

# Two threads wherever it runs: the numbers depend on how many share the sums.
demo: export OMP_NUM_THREADS = 2
demo: setup
	$(BIN)/groupwise run examples/demo/task.yaml --out runs/demo

demo-rivals: export OMP_NUM_THREADS = 2
demo-rivals: setup
	for seed in 0 1 2; do $(BIN)/groupwise run examples/demo/task.yaml --out runs/demo-rivals/$$seed \
		--set seed=$$seed --set rivals.best_of=8 --set rivals.rejection_sampling=true || exit 1; done
	$(BIN)/python benchmarks/demo_checker.py runs/demo-rivals/* --json build/demo_checker.json

# One thread, so that the numbers do not depend on how many cores share the sums.
demo-loop: export OMP_NUM_THREADS = 1
demo-loop: setup
	$(BIN)/python examples/demo_loop.py runs/demo-loop

# Files of tests are in memory, where 4 GiB are free: thousands are written through to the disk.
TEMPORARY = $(or $(shell df --output=avail -m /dev/shm 2>/dev/null | awk 'NR > 1 && $$1 > 4096 { print "/dev/shm" }'),$(TMPDIR),/tmp)

# One thread per process: two test processes share the cores. Each begins with half of the files, so
# that what a folder's tests share is made by one of them.
test: export OMP_NUM_THREADS = 1
test: export PYTEST_DEBUG_TEMPROOT = $(TEMPORARY)
test: setup
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --durations=20

test-all: export OMP_NUM_THREADS = 1
test-all: export PYTEST_DEBUG_TEMPROOT = $(TEMPORARY)
test-all: setup
	$(BIN)/pytest -n 2 --dist worksteal

# Without setup: both sides run on what is installed, and nothing is to change that in between.
golden:
	$(BIN)/python tests/fixtures/golden_runs.py --base "$(BASE)" --only "$(GOLDEN)"

fuzz: export OMP_NUM_THREADS = 1
fuzz: export GROUPWISE_FUZZ_S = 60
fuzz: setup
	$(BIN)/pytest -m fuzz $$(grep -rl pytest.mark.fuzz tests)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

results: setup
	$(BIN)/python docs/hooks/result_tables.py

lock: setup
	$(BIN)/python .ci/lock.py

docs: setup
	$(BIN)/python docs/hooks/assemble.py
	$(BIN)/zensical build --strict

bench: setup
	$(BIN)/python benchmarks/grpo_step.py --json build/grpo_step.json
	$(BIN)/python benchmarks/families.py --json build/families.json
	$(BIN)/pip install --quiet --no-deps --target build/prefix_grouper prefix_grouper
	PYTHONPATH=build/prefix_grouper $(BIN)/python benchmarks/against_prefix_grouper.py --json build/prefix_grouper.json
	$(BIN)/python benchmarks/judge.py --json build/judge.json
	$(BIN)/python benchmarks/compare.py --json build/compare.json
	$(BIN)/python benchmarks/compare_report.py --json build/compare_report.json
	$(BIN)/python benchmarks/stage_a.py --json build/stage_a.json
	$(BIN)/python benchmarks/workflows.py --json build/workflows.json
