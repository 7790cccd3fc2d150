# Two commands do everything: `make run` shows the product, `make test` proves it.
CARGO ?= cargo
# Property tests draw the same cases every time; `make test PROPTEST_RNG_SEED=2` draws others.
export PROPTEST_RNG_SEED ?= 1
# torch takes AMX wherever the processor says it has it; on virtual machines that do not let it be used, Python ends with an illegal instruction.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: run build test lint docs bench bench-python bench-capture scores fuzz fuzz-build corpus fixtures help ui ui-check e2e python test-frameworks tutorial same schema

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## the release binary, target/release/twinscope
	$(CARGO) build --release --locked

run: build ## build, then open the demo in the browser: two runs of a small transformer, one with a fault
	target/release/twinscope demo

test: lint docs fuzz-build ## everything CI runs: format, lints, docs, fuzz targets compile, all tests
	$(CARGO) test --workspace --locked
	$(MAKE) ui-check e2e python test-frameworks

ui: ## build the page anew: ui/ -> crates/server/ui-dist (needs Node; `make run` does not)
	scripts/ui.sh build

ui-check: ## the page: types, unit tests, and that what is committed equals a rebuild
	scripts/ui.sh check

e2e: ## the page in headless Chromium against the real binary
	scripts/ui.sh e2e

schema: ## write Python's field names anew from the Rust types: python/src/twinscope/_schema.py
	TWINSCOPE_WRITE_SCHEMA=1 $(CARGO) test --locked -p twinscope-report --test python_schema

python: ## the Python tests, in an environment of their own (the first time downloads torch)
	CARGO='$(CARGO)' scripts/python.sh

bench-python: ## what capturing a torch model costs, as ratios
	CARGO='$(CARGO)' scripts/python.sh --setup
	target/python/bin/python scripts/bench_python.py

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet

test-frameworks: ## capture in real frameworks: candle, burn, candle-transformers' BERT, PyTorch
	CARGO='$(CARGO)' scripts/frameworks.sh

tutorial: ## docs/tutorial-bert-nan.md, step by step (downloads 84 MB once)
	CARGO='$(CARGO)' scripts/tutorial.sh

bench-capture: ## what recording costs, as ratios
	scripts/bench_capture.sh

fuzz-build: # The targets compile with the stable toolchain; only running them needs cargo-fuzz and nightly.
	$(CARGO) check --manifest-path fuzz/Cargo.toml --locked --quiet

scores: ## where and why, scored over the recorded faults and over every fault the demo can have
	$(CARGO) test --release --locked -p twinscope --test faults -- --nocapture
	TWINSCOPE_SCORES=all $(CARGO) test --release --locked -p twinscope-demo --test causes -- --nocapture --test-threads 1

NEW ?= $(or $(CARGO_TARGET_DIR),target)/release/twinscope
same: $(if $(filter command line environment,$(origin NEW)),,build) ## prove that reports are those of another binary, byte for byte: make same OLD=PATH [NEW=PATH]
	@test -n '$(OLD)' || { echo 'make same OLD=path/to/the/old/twinscope' >&2; exit 2; }
	scripts/same.py '$(OLD)' '$(NEW)'

FUZZ_SECONDS ?= 600
fuzz: ## run every fuzz target for FUZZ_SECONDS (needs cargo-fuzz and a nightly toolchain)
	scripts/fuzz.sh $(FUZZ_SECONDS)

bench: build ## ratios in one run: listing, stats, unpacking, diff, server
	scripts/bench.sh

CORPUS ?= ../shared/corpus
corpus: build ## check a whole corpus: make corpus CORPUS=DIR
	TWINSCOPE_CORPUS=$(abspath $(CORPUS)) $(CARGO) test --release --locked -p twinscope --test corpus -- --nocapture

fixtures: ## write testdata/ anew with the real libraries (makes a virtual environment, needs the network once)
	scripts/fixtures.sh
