# The two commands of a newcomer are `make train` and `make test`; both do the set-up they need.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
SOURCES := pyproject.toml constraints.txt scripts/setup.sh
# What is installed: for training, for the web UI, for the tests and everything else.
FOR_TRAINING := $(VENV)/.for-training
FOR_UI := $(VENV)/.for-ui
FOR_TESTS := $(VENV)/.for-tests

.PHONY: setup train ui quick test test-all check format docs docs-serve clean

setup: $(FOR_TESTS)

$(FOR_TRAINING): $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV) train,babyai
	touch $@

$(FOR_UI): $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV) train,babyai,ui
	touch $(FOR_TRAINING) $@

$(FOR_TESTS): $(SOURCES)
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV) dev browser
	touch $(FOR_TRAINING) $(FOR_UI) $@

train: $(FOR_TRAINING)
	$(BIN)/agentgym train

ui: $(FOR_UI)
	$(BIN)/agentgym ui

# Processes of one thread each; three where tests wait for servers and runs as often as they compute.
# Bytecode is kept even where the environment says otherwise, as in many containers: tests start
# many interpreters.
PROCESSES := 3
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# For daily work: unit tests that cost at most 0.1 seconds each.
quick: PROCESSES := 2
quick: setup
	$(PYTEST) -q -m "not slow and not long" --max-cost 0.1 tests/unit

# What CI runs.
test: check
	$(PYTEST) -m "not long"

# Everything, with the long versions: all algorithms learn, more chaos, more threads, more cases.
test-all: check
	$(PYTEST)

# What a pull request must pass before the tests: format, lint, types.
check: setup
	$(BIN)/ruff format --check src tests examples benchmarks tools
	$(BIN)/ruff check src tests examples benchmarks tools
	$(BIN)/pyrefly check

# The documentation site, in build/site: open index.html there. A broken link fails the build.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: setup
	$(SITE) build --strict

docs-serve: setup
	$(SITE) serve --strict

format: setup
	$(BIN)/ruff format src tests examples benchmarks tools
	$(BIN)/ruff check --fix src tests examples benchmarks tools

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
