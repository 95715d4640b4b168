# The front door. Every target may be run again at any time; `make` alone lists them.
SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo test bench wheel reproduction lint format clean

PRESET ?= release

help:  ## list these targets
	@echo 'ElastiQuant: training over slow networks with compressed gradients'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'New here? Start with: make demo'
	@echo 'PRESET=core|asan|tsan with build and test picks another build (CMakePresets.json);'
	@echo 'TORCH_INDEX_URL says where pip takes torch from (scripts/setup.sh --help).'

setup:  ## install what is missing: Debian packages, and .venv with PyTorch
	@scripts/setup.sh

build:  ## build the program, the libraries and the Python package (into build/release)
	@scripts/build.sh $(PRESET) product

demo:  ## train on 4 workers over a 20 Mbit/s link and compare codecs
	@scripts/step.sh 1/3 'set up: install what is missing' scripts/setup.sh
	@scripts/step.sh 2/3 'build the program' scripts/build.sh release elastiquant_cli
	@scripts/step.sh 3/3 'train three times and compare' scripts/demo.sh

test:  ## build the tests too, and run all
	@scripts/step.sh 1/3 'set up: install what is missing' scripts/setup.sh
	@scripts/step.sh 2/3 'build the program and the tests' scripts/build.sh $(PRESET)
	@scripts/step.sh 3/3 'run the tests' scripts/run_tests.sh $(PRESET)

bench: setup  ## measure the codecs' speed as a ratio to memcpy
	@scripts/build.sh release elastiquant_cli kernel_bench
	@scripts/bench.sh

wheel: setup  ## build a wheel of the Python package into build/wheel
	@scripts/wheel.sh

reproduction: setup  ## write docs/reproduction.md from stored results; RUNS=DIR stores those of DIR first
	@.venv/bin/python scripts/reproduction.py $(if $(RUNS),--runs "$(RUNS)")

lint: setup  ## check format, C++ (clang-tidy), Python (ruff) and shell (shellcheck)
	@scripts/lint.sh

format:  ## lay out the C++ and Python as lint wants it
	@scripts/format.sh

clean:  ## remove build/ (keeps .venv and runs/)
	rm -rf build
