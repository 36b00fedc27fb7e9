# Every target sets up .venv by itself; the only needs are Python 3.11+, git, make and a C compiler.
PYTHON ?= python3
SIZE ?= medium
OUTPUT ?= out
EXTRAS ?= dev,plot,tables,bench,geo

BIN := .venv/bin
READY := .venv/.ready
# Many small factorisations: two workers of one thread each beat one worker of two.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test test-all test-sanitized bench docs format lint setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "harmonicgp needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(READY)
	$(BIN)/harmonicgp demo --size $(SIZE) --output $(OUTPUT)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(ONE_THREAD) HYPOTHESIS_PROFILE=ci $(BIN)/pytest -n 2 --dist worksteal -m "not slow" -q

test-all: lint
	$(ONE_THREAD) HYPOTHESIS_PROFILE=full $(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term -q

# The compiled code under the address and undefined-behaviour sanitizers; the interpreter itself is not built with them.
test-sanitized: $(READY)
	LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so) $$($${CC:-cc} -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	HARMONICGP_CFLAGS="-g -fsanitize=address,undefined -fno-sanitize-recover=all" HARMONICGP_MUST_COMPILE=1 $(ONE_THREAD) \
	$(BIN)/pytest -q -s -n 0 tests/kernels/test_fused.py tests/features

bench: $(READY)
	$(BIN)/python -m benchmarks.gram --output $(OUTPUT)
	$(BIN)/python -m benchmarks.step --output $(OUTPUT)
	$(BIN)/python -m benchmarks.images --output $(OUTPUT)
	$(BIN)/python -m benchmarks.growth --output $(OUTPUT)
	$(BIN)/python -m benchmarks.memory --output $(OUTPUT)
	$(BIN)/python -m benchmarks.prediction --quick --output $(OUTPUT)
	$(BIN)/python -m benchmarks.neighbours --quick --sets smooth,tails --output $(OUTPUT)
	$(BIN)/python -m benchmarks.budgets --quick --sets tails --output $(OUTPUT)
	$(BIN)/python -m benchmarks.page --output $(OUTPUT)
	$(BIN)/python -m benchmarks.gradient_batch

docs: $(READY)
	$(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv site out .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
