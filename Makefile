# Two commands do everything: `make run` shows the product, `make test` proves it.
CARGO ?= cargo
SAMPLE = testdata/sample/run.zip
FAULTS = testdata/faults

.PHONY: run build test lint docs bench fuzz fuzz-build corpus fixtures help

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## the release binary, target/release/twinscope
	$(CARGO) build --release --locked

run: build ## build, then look into a bundled sample and find the fault of another
	target/release/twinscope ls $(SAMPLE)
	target/release/twinscope show $(SAMPLE) '0_query[0, 0, :4, :6]'
	@echo
	@# It ends with 1 because the runs diverge, which is what it is asked to show.
	target/release/twinscope diff $(FAULTS)/reference.pth $(FAULTS)/rope_theta.over_bf16.pth || test $$? -eq 1

test: lint docs fuzz-build ## everything CI runs: format, lints, docs, fuzz targets compile, all tests
	$(CARGO) test --workspace --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet

fuzz-build: # The targets compile with the stable toolchain; only running them needs cargo-fuzz and nightly.
	$(CARGO) check --manifest-path fuzz/Cargo.toml --locked --quiet

FUZZ_SECONDS ?= 600
fuzz: ## run every fuzz target for FUZZ_SECONDS (needs cargo-fuzz and a nightly toolchain)
	scripts/fuzz.sh $(FUZZ_SECONDS)

bench: build ## ratios in one run: listing, stats, unpacking, diff
	scripts/bench.sh

CORPUS ?= ../shared/corpus
corpus: build ## check a whole corpus: make corpus CORPUS=DIR
	TWINSCOPE_CORPUS=$(abspath $(CORPUS)) $(CARGO) test --release --locked -p twinscope --test corpus -- --nocapture

fixtures: ## write testdata/ anew with the real libraries (makes a virtual environment, needs the network once)
	scripts/fixtures.sh
