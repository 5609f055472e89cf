# Everything a person does with the project from the outside. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help setup build test lint unit e2e fuzz demo bench-transfer clean
PYTHON := .venv/bin/python

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what the tests need (apt packages as root, Python packages into .venv)
	@scripts/setup

build: ## the release programs, in target/release
	cargo build --release --workspace

test: ## everything: format, lints, unit tests, a short fuzz, then end to end (the last line is pytest's)
	@scripts/test

lint: ## format, clippy, and the purity of the pure crates
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/purity

unit: ## the Rust tests
	cargo test --workspace --quiet

e2e: setup ## the end-to-end tests alone (ARGS='-k magnet' chooses)
	$(PYTHON) -m pytest tests $(ARGS)

fuzz: ## every fuzz target for 10 minutes
	@scripts/fuzz 600

demo: setup ## 8 nodes receive a real Python environment, each verified, each uploading
	@scripts/demo

bench-transfer: ## side by side with libtorrent, medians of 5 (REPEATS=1 SIZE=1GiB for a quick look)
	@scripts/bench-transfer

clean: ## remove what was built
	cargo clean
	rm -rf .venv .cache bench/results
