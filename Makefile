# What people and CI run: the same commands. `make help` lists them.

CARGO ?= cargo
KEEP  ?=
# How long each fuzz target runs.
SECONDS ?= 60
# Which of the experiments a `make test-*` runs: the first words of its name, such as `leadership`. All by default.
ONLY ?=
# Where cargo builds, as cargo itself sees it.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Where `make bench-policies` keeps what came of each scenario, so that only what has changed is run again, and on how many
# seeds it runs each.
RESULTS := $(TARGET)/policies
SEEDS   ?= 30
vpath %.yaml tests/scenarios tests/scenarios/attacks
SCENARIOS := $(wildcard tests/scenarios/*.yaml tests/scenarios/attacks/*.yaml)
POLICY_RESULTS := $(patsubst %.yaml,$(RESULTS)/%.json,$(notdir $(SCENARIOS)))

.PHONY: help tools build test lint lint-files chart generate demo bench bench-idle bench-policies bench-admission bench-cycle bench-decide bench-simulate compare-decisions test-bad-input test-consumers test-faults test-from-zero test-image test-long test-quick test-install test-outages test-scaling test-side-by-side test-throughput test-upgrade test-zero fuzz deny clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

tools: ## Build the pinned programs of the test control plane, once, into a cache
	@tests/testbed/tools/build.sh > /dev/null

# The example has tests' dependencies, so cargo chooses the features of libraries as it does for tests, and neither
# compiles them again after the other.
build: ## Build the programs that the demo and the tests run
	@tests/build.sh $(TARGET)/build.txt build --locked --workspace --bins --example policy_pages

test: tools ## Run all tests: unit, property, each crate on real sockets, end to end on a real control plane
	@tests/run.sh all

test-quick: ## Formatting, clippy, unit and property tests, sockets: needs neither Go nor a control plane
	@tests/run.sh quick

test-long: tools ## All that a night has time for: laws over 10,000 cases, fuzzing, and every long experiment
	PROPTEST_CASES=10000 tests/run.sh all
	$(MAKE) fuzz test-faults test-bad-input test-consumers test-from-zero test-install test-outages test-scaling test-side-by-side test-throughput test-zero

lint: ## Formatting, clippy, purity of the pure crates, arrows between crates
	@tests/lint.sh

lint-files: ## shellcheck for every script, hadolint for the Dockerfile, actionlint for the workflows (needs Python 3 and Go, once)
	@tests/lint-files.sh

chart: build ## Judge the Helm chart by its render: names, permissions, webhooks, refusals, every documented key
	@tests/chart.sh

generate: ## Write what is made from code: the CRD, the schemas of config map entries, the webhook configurations, the rule reference, the page of settings
	WVA_GENERATE=1 $(CARGO) test --quiet --workspace --test program generated::

demo: tools build ## Show the main job on a real control plane (KEEP=1 leaves it running)
	@$(TARGET)/debug/wva-experiments demo --wva $(TARGET)/debug/wva $(if $(KEEP),--keep)

bench: tools ## Measure the release binary on a real control plane: idle memory with 10 variants
	$(CARGO) build --release --bin wva
	@$(CARGO) run --quiet --package wva-experiments -- bench --wva $(TARGET)/release/wva

bench-idle: tools ## Measure the idle release binary with 1,000 variants for 10 minutes: start, requests to the API server, memory
	$(CARGO) build --release --bin wva
	@$(CARGO) run --quiet --package wva-experiments -- bench-idle --wva $(TARGET)/release/wva

bench-admission: tools ## Measure reviews of the release binary under load with 1,000 variants, and creates with and without webhooks
	$(CARGO) build --release --bin wva
	$(CARGO) bench --quiet --package wva-rules --bench pass
	@$(CARGO) run --quiet --package wva-experiments -- bench-admission --wva $(TARGET)/release/wva --criterion $(TARGET)/criterion --folder $(TARGET)/bench

bench-cycle: tools ## Measure rounds of queries and cycles of the release binary with 1,000 models and 4,000 pods on a real Prometheus
	$(CARGO) build --release --bin wva
	@$(CARGO) run --quiet --package wva-experiments -- bench-cycle --wva $(TARGET)/release/wva --folder $(TARGET)/bench

bench-decide: ## Measure the decisions of a cycle from 100 to 10,000 variants, and what the choice by cost costs more than the least (3 minutes)
	$(CARGO) bench --quiet --package wva-scaling --bench decide
	@$(CARGO) bench --quiet --package wva-scaling --bench cost

bench-simulate: ## A simulated week of 6 million requests on one core, held to its bounds of time and memory
	@$(CARGO) bench --quiet --package wva-simulator --bench week

bench-policies: ## Every scenario, all policies, SEEDS seeds each (30), and the tables and the plot of docs/policy.md and docs/simulate.md; an hour, with -j2 half
	$(CARGO) build --release --bin wva
	@$(MAKE) --no-print-directory $(POLICY_RESULTS)
	@$(CARGO) run --quiet --package wva-simulator --example policy_pages -- $(RESULTS) docs

$(POLICY_RESULTS): $(RESULTS)/%.json: %.yaml $(TARGET)/release/wva
	@mkdir -p $(@D)
	$(TARGET)/release/wva simulate $< --seeds $(SEEDS) --format json > $@.part
	@mv $@.part $@

test-bad-input: tools ## Throw bad input of every kind at the release binary while valid reviews come in; some five minutes
	$(CARGO) build --release --workspace --bins
	@ulimit -n $$(ulimit -Hn) && $(TARGET)/release/wva-experiments faults --wva $(TARGET)/release/wva

test-consumers: tools build ## KEDA, cert-manager and the Prometheus operator as processes use what wva publishes; 10 minutes once they are built
	@$(TARGET)/debug/wva-experiments consumers --wva $(TARGET)/debug/wva $(if $(ONLY),--only $(ONLY))

test-faults: tools build ## Do to replicas of the release binary what operators fear, in full: certificates, leadership, ends; half an hour
	$(CARGO) build --release --bin wva
	@FULL=1 WVA_PROGRAM=$(abspath $(TARGET))/release/wva $(CARGO) test --workspace --test e2e operations::$(ONLY) -- --nocapture

test-image: ## Take the steps of the Dockerfile in a clean folder and look at the result: sizes, paths, notices; some ten minutes
	@tests/image.sh

test-install: tools build ## Install, upgrade and remove the chart and the manifests in every way, with Helm 4 and 3; some 40 minutes
	@FULL=1 $(CARGO) test --workspace --test e2e -- install::$(ONLY) chart::$(ONLY) --include-ignored --skip releases_of_the_previous_chart --nocapture

test-upgrade: tools build ## Upgrade a release of the chart of the commit PREVIOUS, with Helm 4 and 3; two minutes
	@FULL=1 $(CARGO) test --workspace --test e2e -- chart::releases_of_the_previous_chart_upgrade --ignored --nocapture

compare-decisions: ## Compare the answers of `wva decide` with those of the commit PREVIOUS, for 1,000 generated snapshots
	@tests/compare-decisions.sh $(PREVIOUS)

test-outages: tools ## Every kind of outage of Prometheus, 3 minutes each, with the release binary; some 25 minutes
	$(CARGO) build --release --bin wva
	@$(CARGO) run --quiet --package wva-experiments -- outages --wva $(TARGET)/release/wva $(if $(ONLY),--only $(ONLY))

test-from-zero: tools ## Wake 500 models from zero with the release binary, and watch a hundred at zero; some four minutes
	$(CARGO) build --release --bin wva
	@$(CARGO) run --quiet --package wva-experiments -- from-zero --wva $(TARGET)/release/wva

test-scaling: tools build ## Put variants under load while the cluster is short of GPUs, as timelines; some five minutes
	@FULL=1 $(CARGO) test --workspace --test e2e scaling::$(ONLY) -- --nocapture

test-side-by-side: tools build ## Two controllers with an instance and one without, while variants move between them; 10 minutes
	@$(TARGET)/debug/wva-experiments side-by-side --wva $(TARGET)/debug/wva

test-throughput: tools build ## Load in steps for LASTS (60m) over an emulated engine: the trace at each step, what is learnt against the truth
	@$(TARGET)/debug/wva-experiments throughput --wva $(TARGET)/debug/wva --lasts $(or $(LASTS),60m)

test-zero: tools build ## Take idle models to zero and back 200 times under random requests, through outages, and with leaders that die; some 35 minutes
	@$(TARGET)/debug/wva-experiments zero --wva $(TARGET)/debug/wva $(if $(ONLY),--only $(ONLY))

fuzz: ## Run every fuzz target for SECONDS each (60); needs nightly Rust, without it the same targets under proptest
	@SECONDS_EACH=$(SECONDS) tests/fuzz/run.sh

deny: ## Licences, duplicates and sources of all dependencies (installs cargo-deny when it is missing)
	@command -v cargo-deny > /dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

clean: ## Remove what was built here (the cache of tools stays)
	$(CARGO) clean
