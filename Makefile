# `make help` lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
TYPESCRIPT_VERSION := 7.0.2
PRETTIER_VERSION := 3.10.1
REDOCLY_VERSION := 2.77.0
export GOBIN := $(CURDIR)/.bin

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the three commands into .bin
	go build -o .bin/ ./cmd/...

# These tests have no short form: make test leaves them out, and make prove runs them.
# So do those that do more without -short.
LONG := TestTwoBuilds|TestDegraded|TestRedisKinds.*|TestCancelledTrees
WITH_SHORT_FORM := TestScenarios

# In CI, make lint runs all of go vet.
VET := $(if $(CI),-vet=off)

# Many tests wait for processes, so one package more than there are processors runs at once.
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

# CI leaves these packages to make race and make test-plain: linking and running their tests once more takes a
# third of the time of make test.
LEFT_TO_RACE = <(go list $(RACED) ./internal/verify/simulation)

.PHONY: test
test: ## Test every package, some in a short form: 3 to 8 minutes
	@echo "make test: every package, without the race detector; long tests in their short form. make prove has the rest."
	@echo "It needs Go and a Redis, which it installs or starts if it can. Examples in Python 3.11 and Node.js 18.19 are tested where these are installed."
	@echo "It takes up to three minutes on two cores, eight if nothing is compiled yet. What is unchanged is not tested again."
	@hack/ensure-redis.sh
	@$(if $(CI),hack/ensure-languages.sh)
	go test -p $(AT_ONCE) -short -skip '^($(LONG)|TestRecordedConversations)$$' $(VET) $(if $(CI),$$(go list ./... | grep -vxFf $(LEFT_TO_RACE)),./...)
	@$(MAKE) --no-print-directory test-modules

# Modules of their own, so that only they need what they import.
MODULES := examples/slack examples/sqlitestore

.PHONY: test-modules
test-modules: ## Test the examples that are modules of their own
	@for m in $(MODULES); do (cd $$m && go vet ./... && go test -short ./... -args -rapid.checks=30); done

.PHONY: prove
prove: ## Prove more in some 15 minutes: data races, every protocol fault, simulation, chaos, containers
	@hack/steps.sh race test-plain long redis-kinds explore simulation-short chaos-short containers

.PHONY: prove-long
prove-long: ## Prove all that can be proved, for hours
	@hack/steps.sh prove race-long explore-long mutants simulation linear mcp-conformance chaos bench fuzz

# Packages in which goroutines of ours meet.
RACED := ./internal/access ./pkg/bus/membus ./pkg/bus/natsbus ./pkg/api ./internal/gateway/... ./internal/service ./internal/hook/hookcall ./internal/lookup ./internal/policy ./internal/retention \
	./internal/state/logcache ./pkg/state/memstore ./pkg/state/natsstore ./pkg/state/redisstore ./internal/timelimit ./internal/tool/mcptool ./internal/tool/natstool \
	./pkg/toolkit ./internal/deploy ./internal/engine/... ./internal/worker ./internal/devserver ./internal/telemetry

# Packages with tests that make race leaves out: make test-plain runs those. It runs the packages of PLAIN whole.
RACED_PARTLY := ./internal/engine/effect ./internal/gateway ./pkg/bus/natsbus ./pkg/state/memstore ./pkg/state/natsstore ./pkg/state/redisstore

# Long tests in which one goroutine does the work, or which count its allocations.
ONE_GOROUTINE := TestReplay|TestProperties|TestAgree|TestAgreesWithModel|TestQueue|TestHostileChecks

# Tests with thousands of runs or calls, or 64 streams, which race as smaller ones do: make race-long has them.
MANY := Test.*Cost|TestReadyFollowsPublishes|TestLongLogs|TestOneDeathIsOneEviction|TestTreeLimit|TestCancelledTreeStopsGrowing

# Tests of the sizes of bodies and of the configuration of streams, in which few goroutines meet.
SIZES := TestExportIsNotHeldInMemory|TestAgentsEndEarly|TestTooLargeForTheStore|TestVariablesOfHostileBatches|TestProblemsOfManyMistakes|TestTriggerPassesAFullInbox
STREAMS := TestTurnStreams.*|TestReady.*|TestNotReady.*|TestIntakeReadyLooksAtEachTenant|TestLostLayout|TestOversizedEventIsLeftOut|TestBusOverTCP

# Tests with the providers' SDKs: their files have the build tag !nosdk. A third of the time of compiling make race
# was the SDKs'.
PROVIDERS := TestPromptPrefix|TestProviderToolsAfterHandoff|TestProviderToolsInFork|TestToolChoiceWithProviderTools|TestPromptCache|TestAnswerByTool|TestFloodOfAModel

# The suite of stores: race has it once per store, and without the megabytes of a full inbox.
OTHER_SUITES := TestStoreWithoutCache|TestStoreWithoutBatcher|TestStoreConfirmed
LARGE := ^(TestStore|TestTwoProcesses)$$/^(InboxLimit|SignalKeysAreBounded)$$

# All that make race leaves out.
NOT_RACED := ^($(ONE_GOROUTINE)|$(MANY)|$(SIZES)|$(STREAMS)|$(PROVIDERS)|$(OTHER_SUITES))$$|$(LARGE)

SEEDS ?= 1

.PHONY: race
race: redis ## Test with the race detector where goroutines meet, in random order, with all optimisations of workers at work
	@hack/ensure-tools.sh
	@! grep -lE '^func ($(ONE_GOROUTINE)|$(subst .*,[A-Za-z]*,$(MANY)|$(STREAMS))|$(SIZES)|$(PROVIDERS)|$(OTHER_SUITES)|TestStore|TestTwoProcesses)\(' \
		$$(go list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' \
		$$(go list $(RACED) | grep -vxFf <(go list $(RACED_PARTLY) $(PLAIN)))) || \
		{ echo "make race: it leaves out tests of these packages, and CI tests them nowhere else: add the packages to RACED_PARTLY" >&2; exit 1; }
	@! grep -rh --include='*_test.go' -A999 '^//go:build !nosdk' internal pkg | grep -E '^func Test' | grep -vE '^func ($(PROVIDERS))\(' || \
		{ echo "make race: it does not build these tests, and CI tests them nowhere else: add them to PROVIDERS" >&2; exit 1; }
	CGO_ENABLED=1 TURNPIKE_TEST_ALWAYS=eager_claims go test -p $(AT_ONCE) -race -tags nosdk -short -shuffle=on -timeout 20m -skip '$(NOT_RACED)' $(VET) $(RACED)
	CGO_ENABLED=1 go test -race -tags nosdk -shuffle=on -timeout 15m $(VET) ./internal/verify/simulation -strike 4m -seeds $(SEEDS) -seeds-nats 1

.PHONY: race-long
race-long: redis languages ## The same for every package, without short forms
	@hack/ensure-tools.sh
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 60m -skip '^($(ONE_GOROUTINE))$$' $$(go list ./... | grep -vE 'internal/verify/(explore|rediskinds|simulation)$$')

.PHONY: long
long: redis ## Run the tests that make test leaves out or shortens, as far as make race does not
	go test -count=1 -shuffle=on -timeout 20m -run '^($(LONG)|$(WITH_SHORT_FORM))$$' ./internal/measure ./internal/e2e ./internal/verify/degraded

# The suites that say what becomes of runs, whose workers internal/verify/testbed/plain tunes.
PLAIN := ./internal/worker ./internal/deploy

.PHONY: test-plain
test-plain: redis ## Test what becomes of runs without any optimisation of workers, and what make race leaves out
	TURNPIKE_TEST_WITHOUT=eager_claims,sticky,quarantine go test $(VET) $(PLAIN)
	go test -short $(VET) -run '$(NOT_RACED)' $(RACED_PARTLY)

.PHONY: redis
redis: ## See that tests find a Redis: Docker, redis-server, or apt-get as root
	@hack/ensure-redis.sh

.PHONY: languages
languages: ## See that the example tools in Python and TypeScript can run: apt-get as root, npm
	@hack/ensure-languages.sh

.PHONY: clients
clients: ## Check the types of the clients, and test them against a real deployment: needs Python, Node.js, mypy
	@hack/ensure-languages.sh --clients
	cd clients/python && mypy --strict turnpike tests/*.py build_wheel.py
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null && npm run --silent build
	cd clients/typescript && npm run --silent check
	cd internal/verify/clients/vendors && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && cd clients/typescript && node_modules/.bin/openapi-typescript ../../internal/gateway/openapi.json -o "$$made/api.ts" >/dev/null && \
		diff -q src/api.ts "$$made/api.ts" >/dev/null || { echo "clients/typescript/src/api.ts is not made of the OpenAPI document: make client-types"; exit 1; }
	@$(MAKE) --no-print-directory openapi-lint
	go test -tags clients -count=1 -timeout 8m ./internal/verify/clients

.PHONY: docs
docs: ## Build the site of the docs, with search and the OpenAPI reference, in dist/site; a link to a missing page fails. Needs Node.js 20 with npm
	@hack/ensure-languages.sh --clients
	cd hack/site && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	hack/site/node_modules/.bin/vitepress build hack/site
	@$(MAKE) --no-print-directory .bin/redocly
	@REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true .bin/redocly/node_modules/.bin/redocly build-docs internal/gateway/openapi.json -o dist/site/openapi.html

.bin/redocly:
	npm install --prefix .bin/redocly --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error @redocly/cli@$(REDOCLY_VERSION) >/dev/null

.PHONY: openapi-lint
openapi-lint: ## Lint the OpenAPI document: needs Node.js 20 with npm
	@$(MAKE) --no-print-directory .bin/redocly
	@REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true .bin/redocly/node_modules/.bin/redocly lint --config internal/gateway/redocly.yaml --format=stylish internal/gateway/openapi.json 2>&1 | \
		grep -vE '^ *[║╔╚]' ; exit $${PIPESTATUS[0]}

.PHONY: client-types
client-types: ## Rewrite the types of the client for TypeScript from the OpenAPI document: needs npm
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null && npm run --silent types

.PHONY: real
real: redis ## Run recorded conversations through the real parts while workers are killed
	@test -n "$${TURNPIKE_REAL_DATA:-}" || { echo "make real: set TURNPIKE_REAL_DATA to the folder of recorded conversations"; exit 1; }
	go test -count=1 -timeout 5m -run TestRecordedConversations -v ./internal/e2e

.PHONY: explore
explore: ## Explore every order of steps and faults of worker and gateway within a bound, for some minutes
	go test -count=1 -timeout 20m -v -run 'TestExplore|TestWander|TestOrphan|TestAbort' ./internal/verify/explore -prove | grep -vE '^(=== |--- PASS| +--- PASS)'

.PHONY: explore-long
explore-long: ## The same within wider bounds, for hours
	go test -count=1 -timeout 12h -v ./internal/verify/explore -thorough | grep -vE '^(=== |--- PASS| +--- PASS)'

.PHONY: mutants
mutants: ## Plant mistakes in production code, one at a time, and check that the named tests find each: ONLY=abort
	go run ./internal/verify/mutants -only '$(ONLY)'

.PHONY: simulation
simulation: ## Simulate a thousand half hours of faults, and some hundred more
	go test -count=1 -timeout 60m ./internal/verify/simulation -run 'TestFaults$$' -seeds 1000
	go test -count=1 -timeout 30m ./internal/verify/simulation -run TestFailovers -seeds 300
	go test -count=1 -timeout 30m ./internal/verify/simulation -run TestFaultsOnNATS -seeds-nats 50

.PHONY: simulation-short
simulation-short: ## Simulate for less than a minute
	go test -count=1 -timeout 10m ./internal/verify/simulation -seeds 6 -seeds-nats 2

.PHONY: mcp-conformance
mcp-conformance: ## Run the MCP conformance suite and reference server against our client
	hack/mcp-conformance.sh

.PHONY: alerts
alerts: ## Check and test the alert rules of deployments/prometheus with promtool
	@hack/alerts.sh

.PHONY: linear
linear: redis ## Check many histories of both stores under faults for linearizability
	go test -count=1 -timeout 20m ./internal/verify/linear -thorough -v -run Linearizable

.PHONY: chaos
chaos: ## Break deployments of processes at random and check that nothing was lost: TIME=30m SEED=1 DEPLOY=any
	@hack/ensure-redis.sh --server
	go run ./internal/verify/chaos/campaign

.PHONY: chaos-short
chaos-short: ## The same with one deployment that the seed chooses, for 15 seconds
	@hack/ensure-redis.sh --server
	TIME=15s DEPLOY=any go run ./internal/verify/chaos/campaign

.PHONY: redis-kinds
redis-kinds: ## Test the store on Redis Cluster, Sentinel and Valkey, as processes with passwords, and break each for some seconds
	@hack/ensure-redis.sh --server
	@hack/ensure-valkey.sh
	go test -count=1 -timeout 5m ./internal/verify/rediskinds -rapid.checks=10
	TIME=9s DEPLOY=redis-cluster,redis-sentinel,valkey go run ./internal/verify/chaos/campaign

.PHONY: containers
containers: ## Take containers of a deployment off the network and restart each, under load
	@hack/containers.sh

.PHONY: demo
demo: ## See a run survive the death of its worker
	go run ./examples/demo

.PHONY: bench
bench: ## Measure speed, memory and scale of deployments, half an hour: ONLY=turns,death,... ARGS='--store jetstream'
	@hack/ensure-redis.sh --server
	go run ./cmd/turnpike bench --only $(or $(ONLY),all) $(ARGS)

.PHONY: fuzz
fuzz: ## Fuzz every decoder that meets the outside, ten seconds each
	hack/fuzz.sh 10s

.PHONY: fuzz-short
fuzz-short: ## The same with two thousand inputs each, for about a minute in all
	hack/fuzz.sh 2000x

.PHONY: lint
lint: .bin/golangci-lint ## Lint with the pinned golangci-lint
	.bin/golangci-lint run ./...

.bin/golangci-lint:
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: fmt
fmt: ## Format
	gofmt -w clients cmd examples internal pkg turnpiketest *.go

ESBUILD_VERSION := v0.28.2

.bin/esbuild:
	go install github.com/evanw/esbuild/cmd/esbuild@$(ESBUILD_VERSION)

.PHONY: page
page: .bin/esbuild ## Build the page from its sources in web into internal/gateway/ui
	web/build.sh

.PHONY: page-tools
page-tools:
	@hack/ensure-languages.sh
	@[ -x .bin/page/node_modules/.bin/tsc ] && [ -x .bin/page/node_modules/.bin/prettier ] || npm install --prefix .bin/page --no-save --no-package-lock --no-audit --no-fund --loglevel=error typescript@$(TYPESCRIPT_VERSION) prettier@$(PRETTIER_VERSION) >/dev/null

.PHONY: page-types
page-types: page-tools ## Check the types and the format of the page's sources: needs npm
	.bin/page/node_modules/.bin/tsc -p web
	cd web && ../.bin/page/node_modules/.bin/prettier --check --log-level=warn "**/*.{ts,tsx}" || { echo "make page-fmt formats them"; exit 1; }

.PHONY: page-fmt
page-fmt: page-tools ## Format the page's sources: needs npm
	cd web && ../.bin/page/node_modules/.bin/prettier --write --log-level=warn "**/*.{ts,tsx}"

.PHONY: page-unit
page-unit: .bin/esbuild ## Test the pure code of the page: needs Node.js
	@hack/ensure-languages.sh
	@rm -f .bin/page/*.test.mjs
	@for t in web/src/lib/*.test.ts; do .bin/esbuild "$$t" --bundle --platform=node --format=esm --log-level=warning --alias:marked="$$PWD/web/vendor/marked/lib/marked.esm.js" --outfile=".bin/page/$$(basename "$$t" .ts).mjs" || exit 1; done
	node --test .bin/page/*.test.mjs

.PHONY: page-test
page-test: page-types page-unit ## Test the page in Chromium against a real deployment: PICTURES=dist/pictures keeps pictures
	@hack/ensure-chromium.sh
	TURNPIKE_PICTURES=$(if $(PICTURES),$(abspath $(PICTURES))) go test -count=1 -timeout 25m -parallel 3 -tags browser ./internal/verify/browser

.PHONY: generate
generate: page ## Rewrite generated files
	go test ./pkg/state -run TestStateMachineDoc -update
	go test ./pkg/loop -run 'TestScenarios|TestClassesDoc' -update
	go test ./pkg/model -run "TestWordsDoc|TestTakesDoc|TestFilesDoc|TestHostedDoc" -update
	go test ./internal/gateway -run TestRoutesDoc -update
	go run ./hack/licenses

.PHONY: verify
verify: generate ## Fail if anything is not formatted, tidy or generated; make lint has go vet
	test -z "$$(gofmt -l clients cmd examples internal pkg turnpiketest *.go)"
	go mod tidy -diff
	@for m in $(MODULES); do (cd $$m && go mod tidy -diff); done
	git diff --stat --exit-code

.PHONY: reproducible
reproducible: ## Build the commands twice, in two folders, and see that they are the same: COLD=1 compiles twice, too
	hack/reproducible.sh

.PHONY: dist
dist: ## Build a release into dist/release: Linux and macOS, amd64 and arm64, clients, SBOMs, checksums
	hack/dist.sh

.PHONY: dist-check
dist-check: ## Build a release for this machine, install it, and see that a changed archive is refused
	hack/dist-check.sh

.PHONY: sbom
sbom: ## Write what the commands in dist are made of, as CycloneDX
	hack/sbom.sh

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities, where their database can be reached: GOVULNDB=file:///PATH
	hack/vulncheck.sh

.PHONY: smoke
smoke: ## Start a deployment as processes and send a run through it
	hack/smoke.sh

.PHONY: up
up: ## Bring up the compose deployment
	docker compose -f deployments/compose.yaml up --build -d

.PHONY: down
down: ## Take down the compose deployment
	docker compose -f deployments/compose.yaml down
