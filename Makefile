# Needs only Python 3.11+ and make; everything else is installed into .venv, pinned.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= reproduction

export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: test lint format reproduce clean

test: .venv/ready
	$(BIN)/pytest -n auto --maxprocesses 8

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reproduce: .venv/ready
	$(BIN)/ensemble-sampling reproduce --scale laptop --out $(OUT)

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; v = sys.version_info; sys.exit(v < (3, 11) and f'Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; set PYTHON=')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv
