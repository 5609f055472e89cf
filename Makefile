# Everything a person does with the project from the outside. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help setup build install uninstall wheel dist dist-wheel dist-test debugging test test-htcondor lint unit e2e advisories fuzz sim-soak classad-soak copy-soak field-soak hosts-soak demo demo-field docs bench-transfer bench-mount bench-depot bench-classad bench-daemon-impact bench-membership bench-field bench-mover bench-python bench-sim bench-simgrid bench-sim-lab experiments experiments-long experiments-mount daemon-marathon race clean
PYTHON := .venv/bin/python

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the requirements of the tests (apt packages as root, Python packages into .venv)
	@scripts/setup

build: ## the release programs, in target/release
	@scripts/web
	cargo build --release --workspace

install: ## the release programs, library, header, manual pages, completions and units below PREFIX (/usr/local), in DESTDIR
	@scripts/install

uninstall: ## remove what `make install` put there; changed settings stay
	@scripts/install remove

wheel: setup ## the Python package for this machine with the program and the C library in it, in target/wheel
	@scripts/wheel

dist: ## release files, in target/dist: wheels, sources, tarballs, Debian and RPM packages, container, checksums (downloads zig)
	@scripts/dist

dist-wheel: ## the wheels only, for glibc 2.28 and newer
	@scripts/dist wheel

dist-test: ## install, upgrade, remove and run the packages of `make dist`, in chroots of Debian 12 and 11 (as root)
	@scripts/dist-test

debugging: ## the release programs with symbols, for debuggers and profilers, in target/debugging
	@scripts/web
	cargo build --profile debugging --workspace

test: ## everything: format, lints, unit tests, a short fuzz, then end to end (the last line is pytest's)
	@scripts/test

test-htcondor: setup build ## BLAST jobs of a real HTCondor pool, in a chroot (about 1 GB of downloads once; as root)
	@TIDECAST_HTCONDOR=1 TIDECAST_NO_BUILD=1 $(PYTHON) -m pytest tests/htcondor $(ARGS)

docs: ## the site of the documentation, in target/docs (mdBook; installed into .cache/tools if missing)
	@scripts/docs check
	@scripts/docs build

lint: ## format, clippy, the purity of the pure crates, the layers of others, file access by crate paths only, links of the documentation, Python's types
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --profile testing -- -D warnings
	scripts/purity
	scripts/layers
	scripts/contained
	scripts/deny
	scripts/messages check
	scripts/docs check
	scripts/web check
	scripts/setup python
	scripts/types --no-wheel

unit: ## the Rust tests
	cargo test --workspace --quiet --profile testing

e2e: setup ## the end-to-end tests alone (ARGS='-k magnet' chooses)
	TIDECAST_PROFILE=testing $(PYTHON) -m pytest tests $(ARGS)

advisories: ## known vulnerabilities of other crates (needs the network, and cargo-deny: cargo install --locked cargo-deny)
	cargo deny check advisories

fuzz: ## every fuzz target for 10 minutes
	@scripts/fuzz 600

classad-soak: setup ## 500,000 fresh random ClassAd expressions beside HTCondor's own library
	@TIDECAST_FRESH=20 .venv/bin/python -m pytest -q tests/e2e/test_classad.py

copy-soak: setup ## `copy` beside rsync on 2,000 fresh random trees: files left out, deleted and kept, reports
	@TIDECAST_FRESH=100 .venv/bin/python -m pytest -q tests/e2e/test_copy_filter.py tests/e2e/test_copy_flags.py $(ARGS)

field-soak: setup ## a field's values of 6,000 fresh random files, beside xarray and netCDF4
	@TIDECAST_FRESH=20 TIDECAST_NO_BUILD=1 $(PYTHON) -m pytest -q tests/e2e/test_field_missing.py -k those_of

hosts-soak: setup build ## 40 fresh random host lists, beside getaddrinfo (as root), clustershell and Slurm's scontrol
	@TIDECAST_NO_BUILD=1 TIDECAST_FRESH=40 $(PYTHON) -m pytest -q tests/e2e/test_bcast_hosts.py tests/e2e/test_host_lists.py -k 'addresses_say or reads_the_same'

race: build ## swap directories of a store for links during all its operations (SECONDS_LONG=60)
	TIDECAST_RACE_SECONDS=$(or $(SECONDS_LONG),60) cargo test --release -p tidecast-depot --test race -- --nocapture
	TIDECAST_RACE_SECONDS=$(or $(SECONDS_LONG),60) TIDECAST_NO_BUILD=1 $(PYTHON) -m pytest -q tests/e2e/test_swapped_links.py $(ARGS)

daemon-marathon: ## kill -9 of cache daemons, and power cuts, during operation (ROUNDS=1000; OLDER=COMMIT: in turn with a program of that commit)
	@scripts/daemon-marathon

sim-soak: ## random seeds of the simulator for hours (HOURS=2), each checked at every step
	cargo run --release --quiet -p tidecast-cli -- sim --seeds random --for $(or $(HOURS),2)h

demo: ## 8 nodes receive a real Python environment, each verified, each uploading
	@scripts/setup demo
	@scripts/demo

demo-field: setup build ## a simulated field, sent by UDP and drawn in the browser while it arrives
	@scripts/demo-field

bench-transfer: ## side by side with libtorrent, medians of 5 (REPEATS=1 SIZE=1GiB for a quick look)
	@scripts/bench-transfer

bench-depot: build ## 10,000 caches of 100 files in one store: `cache ls`, start-up; and a small store with a constant inflow
	$(PYTHON) -m bench.depot scale
	$(PYTHON) -m bench.depot inflow

bench-classad: ## matches of two ClassAds a second, on one core
	cargo run --release --quiet -p tidecast-classad --example matches

bench-daemon-impact: build ## 100 daemons of one host that share 1 GiB; BLAST beside a daemon that fetches (needs ncbi-blast+)
	$(PYTHON) -m bench.daemon_impact children
	$(PYTHON) -m bench.daemon_impact blast

bench-mount: ## programs and walks from a warm mount beside tmpfs, medians of 9 (as root)
	@scripts/bench-mount

bench-mover: ## `tidecast copy` beside rsync, tar, rclone, GridFTP and others, an hour or two (ARGS='--places loopback --repeats 1'; as root)
	@scripts/bench-mover $(ARGS)

bench-python: wheel ## the Python package: fsspec beside the file, weights beside safetensors, get beside the program (ARGS='--size 1')
	$(PYTHON) -m bench.python $(ARGS)

bench-field: build ## throughput of `tidecast field`: a core, pacing, loss and parity, steps, the page (ARGS="peak --repeats 1"; iperf3, root)
	$(PYTHON) -m bench.field $(ARGS)

bench-simgrid: ## the simulator's network model beside SimGrid's (installs libsimgrid-dev; as root)
	@scripts/bench-sim simgrid

bench-sim-lab: ## the simulator beside the real program on the emulated cluster (as root)
	@scripts/bench-sim lab

bench-membership: build ## daemons on wires of their own: time to find each other; half of them fail; a partition (root)
	$(PYTHON) -m bench.membership target/release/tidecast 8 16 50
	$(PYTHON) -m bench.membership target/release/tidecast seeds
	$(PYTHON) -m bench.membership target/release/tidecast losses
	$(PYTHON) -m bench.membership target/release/tidecast gets

bench-sim: ## both
	@scripts/bench-sim

experiments: ## "MPI vs BitTorrent" on the emulated cluster, half an hour (ARGS='--only tidecast,ompi-pipe'; as root)
	@lab/experiments/setup
	@lab/lab experiment short $(ARGS)

experiments-long: ## all settings and sizes of it; resumes after an interruption (as root)
	@lab/experiments/setup
	@lab/lab experiment long --resume $(ARGS)

experiments-mount: ## software started on many nodes at once from a mount, from sshfs, from a tar; half an hour (as root)
	@lab/experiments/setup
	@lab/lab experiment mount mount-fairness libraries $(ARGS)

clean: ## remove build results
	cargo clean
	rm -rf .venv .cache bench/results
