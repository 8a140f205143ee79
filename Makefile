# The two commands of a newcomer are `make train` and `make test`; both do all the set-up.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= python3

.PHONY: setup train test check format clean

setup: $(STAMP)

# Two installs: torch first, at its pinned version, because an unpinned request for it by another
# package may bring several gigabytes of CUDA libraries along.
$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV)
	touch $(STAMP)

train: setup
	$(BIN)/agentgym train

# Two processes of one thread each: tests wait for servers and runs as often as they compute. Files
# in their order, because the longest ones come first. Bytecode is kept even where the environment
# says otherwise, as in many containers: tests start many interpreters.
test: check
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# What a pull request must pass before the tests: format, lint, types.
check: setup
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/pyrefly check

format: setup
	$(BIN)/ruff format src tests examples benchmarks
	$(BIN)/ruff check --fix src tests examples benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
