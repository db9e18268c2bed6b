# Two commands do all the set-up: `make run` opens the window, `make test` passes the tests.

PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=
BIN     := $(VENV)/bin

export QT_API := pyside6
export PYQTGRAPH_QT_LIB := PySide6
export LC_ALL := C.UTF-8
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test check kernels harden bench clean system system-offscreen python

help:  ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/' | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-7s %s\n' "$$name" "$$text"; done

run: system $(VENV)/.installed  ## open the window with the demo model (ARGS="--help" for more)
	@$(BIN)/batchscope $(ARGS)

test: export OMP_NUM_THREADS := 1
test: export QT_QPA_PLATFORM := offscreen
test: system-offscreen $(VENV)/.installed-dev  ## run the tests (WORKERS=1 for one after the other, ARGS="-k blocks")
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: system-offscreen $(VENV)/.installed-dev  ## lint, format, types, and who may import whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

kernels: $(VENV)/.installed-dev  ## compile every GPU kernel and fail where one spills registers in a loop (ARGS="80 90", ARGS="--matrix")
	@$(BIN)/python -m engine.kernels.offline.compiled $(ARGS)

harden: export QT_QPA_PLATFORM := offscreen
harden: system-offscreen $(VENV)/.installed-dev  ## read ten thousand broken files, kill and soak (ARGS="--seed 7 --count 1000")
	@$(BIN)/python -m tests.hardening.harden $(ARGS)

bench: system-offscreen $(VENV)/.installed  ## measure this engine against transformers and the bound (ARGS="--ui")
	@$(BIN)/batchscope bench $(ARGS)

clean:  ## remove build products and caches; the environment in .venv stays
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -type d -prune -exec rm -rf {} +

# What pip cannot bring: Qt's system libraries and Debian's python3-venv.
system: | python
	@$(PYTHON) packaging/qt_libraries.py --venv $(VENV)

system-offscreen: | python
	@$(PYTHON) packaging/qt_libraries.py --venv $(VENV) --offscreen

python:
	@command -v $(PYTHON) > /dev/null || { \
		echo "$(PYTHON) is not there. On Debian or Ubuntu: sudo apt-get install python3 python3-venv"; exit 1; }

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install -e '.[dev]'
	@touch $(VENV)/.installed $@
