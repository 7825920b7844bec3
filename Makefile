# Commands of people and CI. `make help` shows those of every day, `make list` the others.

CARGO ?= cargo
KEEP  ?=
# Seconds for each fuzz target.
SECONDS ?= 60
# Selects experiments of a `make test-*` by the start of the name, such as `leadership`. Default: all.
ONLY ?=
# Cargo's target folder.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Results of `make bench-policies`, so that only changed scenarios run again, and the seeds of each.
RESULTS := $(TARGET)/policies
SEEDS   ?= 30
vpath %.yaml tests/scenarios tests/scenarios/attacks
SCENARIOS := $(wildcard tests/scenarios/*.yaml tests/scenarios/attacks/*.yaml)
POLICY_RESULTS := $(patsubst %.yaml,$(RESULTS)/%.json,$(notdir $(SCENARIOS)))
# The same for `make bench-traces`. The requests are recorded: seeds differ only in how long replicas take to start.
TRACE_RESULTS := $(patsubst tests/scenarios/traces/%.yaml,$(RESULTS)/traces/%.json,$(wildcard tests/scenarios/traces/*.yaml))

.PHONY: help list tools build test lint lint-files chart docs generate demo replay soak profile-cycle bench bench-backtest bench-conditions bench-idle bench-policies bench-reaction bench-sizes bench-admission bench-cycle bench-decide bench-report bench-simulate bench-tenants bench-curves bench-traces bench-windows compare-decisions test-bad-input test-consumers test-docs test-engines test-faults test-from-zero test-image test-long test-quick test-recipes test-report test-rollouts test-router test-install test-outages test-scale-down test-scaling test-side-by-side test-throughput test-upgrade test-versions test-zero fuzz deny clean

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo "  make list         Show the checks, experiments and measurements"

list:
	@grep -E '^[a-z-]+:.*#: ' $(MAKEFILE_LIST) | awk -F ':.*#: ' '{printf "  make %-18s %s\n", $$1, $$2}'

tools: #: Build the pinned programs of the test control plane, once, into a cache
	@tests/testbed/tools/build.sh > /dev/null

# The example has the tests' dependencies, so both builds use the same features and compile libraries once.
build: ## Build the programs of the tests
	@tests/build.sh $(TARGET)/build.txt build --locked --workspace --exclude xtask --bins --example policy_pages

test: tools ## Run all tests: unit, property, each crate on real sockets, end to end on a real control plane
	@tests/run.sh all

test-quick: ## Run formatting, clippy, unit and property tests, and tests on sockets: needs neither Go nor a control plane
	@tests/run.sh quick

test-long: tools #: Run the nightly tests: laws over 10,000 cases, fuzzing, and every long experiment
	PROPTEST_CASES=10000 tests/run.sh all
	$(MAKE) fuzz test-faults test-bad-input test-consumers test-from-zero test-image test-install test-outages test-recipes test-rollouts test-router test-scale-down test-scaling test-side-by-side test-throughput test-versions test-zero

lint: ## Check formatting, clippy, purity of the pure crates, dependencies between crates
	@tests/lint.sh

lint-files: #: Run shellcheck, hadolint and actionlint (needs Python 3 and Go, once)
	@tests/lint-files.sh

chart: build #: Check renders of the Helm chart: names, permissions, webhooks, refusals, every documented key; and a release of a made-up owner
	@tests/chart.sh
	@tests/alerts.sh
	@tests/release.sh

docs: #: Build the site of docs/ into target/docs (installs mdBook into target/tools, once)
	@tests/docs.sh

test-docs: #: Open the site of docs/ in headless Chromium: index, search, a narrow screen, diagrams (needs chromium and Python 3)
	@tests/docs-browser.sh

test-report: build #: Open the report of a day in headless Chromium, or that of `make demo` in REPORT=target/demo: points, decisions, a narrow screen, light and dark (needs chromium and Python 3)
	@WVA_PROGRAM=$(TARGET)/debug/wva DOCS=$(DOCS) tests/report-browser.sh $(REPORT)

# `cargo xtask generate` with the libraries of the tests: by itself it has fewer features, and compiles libraries again.
generate: ## Write generated files: CRD, schemas of ConfigMap entries, webhook configurations, rule reference, dashboards, pages of settings, CRD and entries
	@$(CARGO) test --quiet --locked --workspace --test generate --no-run
	@$(TARGET)/debug/xtask generate
	@$(CARGO) run --quiet --package wva-simulator --example policy_pages -- hour docs/development/evidence

demo: ## Show the main job on a real control plane, and write its report to target/demo (KEEP=1 leaves it running)
	@tests/demo.sh $(if $(KEEP),--keep)

bench: tools #: Measure the release binary on a real control plane: idle memory with 10 variants
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- bench --programs $(TARGET)/release

bench-idle: tools #: Measure the idle release binary with 1,000 variants for 10 minutes: start, requests to the API server, memory
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- bench-idle --programs $(TARGET)/release

bench-admission: tools #: Measure reviews of the release binary under load with 1,000 variants, and creates with and without webhooks
	$(CARGO) build --release --bin manager
	$(CARGO) bench --quiet --package wva-rules --bench pass
	@$(CARGO) run --quiet --package wva-experiments -- bench-admission --programs $(TARGET)/release --criterion $(TARGET)/criterion --folder $(TARGET)/bench

bench-cycle: tools #: Measure rounds of queries and cycles of the release binary with MODELS (1,000) models of REPLICAS (4) pods in NAMESPACES (20) namespaces on a real Prometheus
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- bench-cycle --programs $(TARGET)/release --folder $(TARGET)/bench $(if $(NAMESPACES),--namespaces $(NAMESPACES)) $(if $(MODELS),--models $(MODELS)) $(if $(REPLICAS),--replicas $(REPLICAS))

bench-sizes: #: Run bench-cycle for 10, 100, 1,000 and 5,000 models, and print the table and the plot of docs/development/evidence/performance.md; 45 minutes
	@for models in 10 100 1000 5000; do $(MAKE) --no-print-directory bench-cycle MODELS=$$models NAMESPACES=10 || true; done
	@$(CARGO) run --quiet --package wva-experiments -- sizes --folder $(TARGET)/bench

profile-cycle: tools build #: Show which parts of a cycle over 2,000 variants take the processor time (needs Debian's package linux-perf); eight minutes
	@tests/profile.sh

bench-reaction: tools #: Measure 50 steps of the load: from the servers to Prometheus, the target, the HPA and a ready replica; SCRAPE (15s) is the scrape interval; 12 minutes
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- reaction --programs $(TARGET)/release $(if $(SCRAPE),--scrape $(SCRAPE))

bench-tenants: tools #: Measure the memory of the release binary next to large objects of foreign namespaces and hostile metrics pages (10 minutes)
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- bench-tenants --programs $(TARGET)/release

bench-decide: #: Measure the decisions of a cycle for 100 to 10,000 variants, and the choice by cost against the least cost (3 minutes)
	$(CARGO) bench --quiet --package wva-scaling --bench decide
	@$(CARGO) bench --quiet --package wva-scaling --bench cost

bench-report: #: Report 10,000 variants over a day and one variant over 30 days within bounds of time, size and memory; a few minutes
	@$(CARGO) bench --quiet --package wva-simulator --bench report

bench-simulate: #: Simulate a week of 6 million requests on one core within its bounds of time and memory
	@$(CARGO) bench --quiet --package wva-simulator --bench week

bench-policies: #: Run every scenario with all policies and SEEDS seeds (30), and write tables and plot of docs/development/evidence/policies.md; an hour, with -j2 half
	$(CARGO) build --release --bin wva
	@$(MAKE) --no-print-directory $(POLICY_RESULTS)
	@$(CARGO) run --quiet --package wva-simulator --example policy_pages -- policies $(RESULTS) docs/development/evidence

$(POLICY_RESULTS): $(RESULTS)/%.json: %.yaml $(TARGET)/release/wva
	@mkdir -p $(@D)
	$(TARGET)/release/wva simulate $< --seeds $(SEEDS) -o json > $@.part
	@mv $@.part $@

bench-traces: #: Recorded traffic of production services, all policies, SEEDS seeds each (30), and the table of docs/development/evidence/traffic.md; five minutes once it is built
	$(CARGO) build --release --bin wva
	@$(MAKE) --no-print-directory $(TRACE_RESULTS) $(RESULTS)/targets.md
	@$(CARGO) run --quiet --package wva-simulator --example policy_pages -- traffic $(RESULTS)/traces docs/development/evidence

$(TRACE_RESULTS): $(RESULTS)/traces/%.json: tests/scenarios/traces/%.yaml $(wildcard tests/traces/*.gz) $(TARGET)/release/wva
	@mkdir -p $(@D)
	$(TARGET)/release/wva simulate $< --seeds $(SEEDS) -o json > $@.part
	@mv $@.part $@

replay: tools #: Replay an hour of Azure code and of Mooncake in real time on a real control plane, and compare with the simulator; SLO_TARGET states a share to keep
	$(CARGO) build --release --workspace --exclude xtask --bins
	@$(TARGET)/release/wva-experiments replay $(or $(ONLY),tests/scenarios/traces/azure-code.yaml tests/scenarios/traces/mooncake-conv.yaml) $(if $(LASTS),--lasts $(LASTS)) $(if $(SLO_TARGET),--slo-target $(SLO_TARGET))

bench-backtest: #: Fill a real Prometheus with recorded traffic as simulated fleets served it, and compare `wva backtest` with the truth; RAN=policy: what ran in place of the HPA; WEEK=1: a week of 20 models; PARTS=1: which part of the reconstruction makes which error, in memory
	$(CARGO) build --quiet --release
	@$(CARGO) run --quiet --release --package wva-experiments -- bench-backtest --programs $(TARGET)/release --folder $(TARGET)/backtest $(if $(ONLY),--only $(ONLY)) $(if $(RAN),--ran '$(RAN)') $(if $(WEEK),--week) $(if $(PARTS),--parts)

bench-curves: #: Attainment and cost of the throughput analyzer by utilization, for recorded traffic, ladder and roles; a minute once it is built
	@$(CARGO) run --quiet --release --package wva-simulator --example settings -- curves 10 $(wildcard tests/scenarios/traces/*.yaml) tests/scenarios/ladder.yaml tests/scenarios/attacks/roles.yaml

bench-conditions: #: Engines and faults of tests/conditions.yaml and shares of tests/targets.yaml under all policies, SEEDS seeds each (30): the tables and the plot of docs/development/evidence/conditions.md; ten minutes once it is built
	@$(CARGO) run --quiet --release --package wva-simulator --example conditions -- tests/conditions.yaml $(SEEDS)
	@rm -f $(RESULTS)/targets.md
	@$(MAKE) --no-print-directory $(RESULTS)/targets.md
	@cat $(RESULTS)/targets.md
	@$(CARGO) run --quiet --package wva-simulator --example policy_pages -- shares $(RESULTS) docs/development/evidence

# Also the column of warm fleets in traffic.md.
$(RESULTS)/targets.md: tests/targets.yaml
	@mkdir -p $(@D)
	@$(CARGO) run --quiet --release --package wva-simulator --example conditions -- $< $(SEEDS) > $@.part
	@mv $@.part $@

bench-windows: #: Means of the throughput analyzer over all scenarios of hours, with other cycles, holds and scale-down windows; a minute once it is built
	@$(CARGO) run --quiet --release --package wva-simulator --example settings -- windows 3 $(filter-out %/diurnal-week.yaml,$(wildcard tests/scenarios/*.yaml tests/scenarios/*/*.yaml))

test-bad-input: tools #: Send bad input of every kind to the release binary during valid reviews; some five minutes
	$(CARGO) build --release --workspace --exclude xtask --bins
	@ulimit -n $$(ulimit -Hn) && $(TARGET)/release/wva-experiments faults --programs $(TARGET)/release

test-consumers: tools build #: Run KEDA, cert-manager and the Prometheus operator as processes with wva; 10 minutes once they are built
	@$(TARGET)/debug/wva-experiments consumers --programs $(TARGET)/debug $(if $(ONLY),--only $(ONLY))

test-engines: tools build #: Run real vLLM servers on this machine's CPU under load, and check what wva makes of them; 15 minutes, once 6 GB are installed in target/engines
	@tests/engines/install.sh
	@python3 tests/engines/sglang_names.py tests/fixtures/model-servers/sglang-names.txt $(TARGET)/engines/sglang
	@python3 tests/engines/sglang_names.py tests/fixtures/model-servers/sglang-names.txt $(TARGET)/engines/sglang --newest
	@$(TARGET)/debug/wva-experiments engines --programs $(TARGET)/debug --folder $(TARGET)/engines

test-faults: tools build #: Test faults of certificates, leadership and shutdown in full on the release binary; half an hour
	$(CARGO) build --release --bin manager
	@FULL=1 WVA_PROGRAMS=$(abspath $(TARGET))/release $(CARGO) test --workspace --test e2e operations::$(ONLY) -- --nocapture

test-image: #: Take the steps of the Dockerfile in a clean folder and check sizes, paths, notices; some ten minutes
	@tests/image.sh

test-install: tools build #: Install, upgrade and remove the chart and the manifests in every way, with Helm 4 and 3; some 40 minutes
	@FULL=1 $(CARGO) test --workspace --test e2e -- install::$(ONLY) chart::$(ONLY) --include-ignored --skip releases_of_the_previous_chart --nocapture

test-upgrade: tools build #: Upgrade a release of the chart of the commit PREVIOUS, with Helm 4 and 3; two minutes
	@FULL=1 $(CARGO) test --workspace --test e2e -- chart::releases_of_the_previous_chart_upgrade --ignored --nocapture

test-versions: build #: Run admission, policies, lifecycle, HPA and install on the oldest and the newest Kubernetes, and two versions of wva side by side: the commit PREVIOUS (the last tag, or else the last commit) and this one
	@ONLY=$(ONLY) tests/versions.sh $(PREVIOUS)

compare-decisions: #: Compare the answers of `wva decide` with those of the commit PREVIOUS, for 1,000 generated snapshots
	@tests/compare-decisions.sh $(PREVIOUS)

test-outages: tools #: Test faults of Prometheus, pods, the API server, etcd, clocks and replicas, LASTS (3m) each, with the release binary; some 110 minutes (needs Debian's package faketime)
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- outages --programs $(TARGET)/release $(if $(LASTS),--lasts $(LASTS)) $(if $(ONLY),--only '$(ONLY)')

soak: tools #: Run LASTS (60m) of churn, faults and failovers over 300 variants: memory, descriptors, threads and series must stay flat; LEAK=1 adds a leak to a debug build, which the slopes must show
	$(CARGO) build $(if $(LEAK),,--release) --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- soak --programs $(TARGET)/$(if $(LEAK),debug,release) --folder $(TARGET)/bench $(if $(LASTS),--lasts $(LASTS)) $(if $(LEAK),--leak)

test-from-zero: tools #: Wake 500 models from zero with the release binary, and watch a hundred at zero; some four minutes
	$(CARGO) build --release --bin manager
	@$(CARGO) run --quiet --package wva-experiments -- from-zero --programs $(TARGET)/release

test-scale-down: tools build #: Scale busy models down 200 times where one replica is idle, and count lost requests; some six minutes
	@$(TARGET)/debug/wva-experiments scale-down --programs $(TARGET)/debug

test-recipes: tools #: Walk the recipes of CONTRIBUTING.md on a copy: a setting, a rule and a metric, and each step left out; some ten minutes
	@tests/recipes.sh

test-rollouts: tools build #: Roll 20 replicas out under constant load on the real HPA, and print the table; some seven minutes
	@$(CARGO) test --workspace --test e2e rollout:: -- --nocapture --ignored

test-router: tools build #: Send requests through Envoy and real endpoint pickers to emulated servers, and check what wva makes of the pickers; some eight minutes, once both are there (needs Python 3)
	@tests/testbed/tools/build.sh epp > /dev/null
	@$(CARGO) test --workspace --test e2e --no-run
	@envoy=$$(tests/router/install.sh) && ENVOY_PROGRAM=$$envoy ONLY=$(ONLY) tests/router/isolated.sh $(CARGO) test --workspace --test e2e router:: -- --ignored --nocapture

test-scaling: tools build #: Print timelines of variants under load while the cluster is short of GPUs; some five minutes
	@FULL=1 $(CARGO) test --workspace --test e2e scaling::$(ONLY) -- --nocapture

test-side-by-side: tools build #: Move variants between two controllers with an instance and one without; 10 minutes
	@$(TARGET)/debug/wva-experiments side-by-side --programs $(TARGET)/debug

test-throughput: tools build #: Change the load of an emulated engine in steps for LASTS (60m), and compare what is learnt with the truth
	@$(TARGET)/debug/wva-experiments throughput --programs $(TARGET)/debug --lasts $(or $(LASTS),60m)

test-zero: tools build #: Take idle models to zero and back 200 times under random requests, outages and killed leaders; some 35 minutes
	@$(TARGET)/debug/wva-experiments zero --programs $(TARGET)/debug $(if $(ONLY),--only $(ONLY))

fuzz: #: Run every fuzz target for SECONDS each (60); without nightly Rust, the same targets under proptest
	@SECONDS_EACH=$(SECONDS) tests/fuzz/run.sh

deny: #: Check licences, duplicates and sources of all dependencies (installs cargo-deny if it is missing)
	@command -v cargo-deny > /dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check bans licenses sources

clean: #: Remove build output (keeps the cache of tools)
	$(CARGO) clean
