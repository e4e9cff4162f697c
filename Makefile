# The commands of this repository. `make help` lists them; each recipe is one or two lines that you could type yourself.

GO            ?= go
CLUSTER       ?=
GOLANGCI_LINT  = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATIC         = $(GO) build -ldflags "-s -w"
# The cluster of the tests: the one of CLUSTER=existing is $KUBECONFIG, else the local one is brought up.
UP             = $(GO) run ./e2e/cmd/cluster up --kwok 3

export CLUSTER
# The same for all that is built here, images and tests too: so it is compiled once.
export CGO_ENABLED = 0
export GOFLAGS    := $(strip $(GOFLAGS) -trimpath)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## a GitLab job in a warm pod, for real: cluster, manager, pool, one cold job and one warm (CLUSTER=local|kind|existing)
	@$(GO) run ./e2e/cmd/demo up

.PHONY: demo-down
demo-down: ## remove all that demo made, the local cluster too
	@$(GO) run ./e2e/cmd/demo down

.PHONY: test
test: build ## all tests: unit, against a real kube-apiserver, end to end on the real node
ifeq ($(CLUSTER),existing)
	IDLECOUNT_TEST_CLUSTER=required IDLECOUNT_TEST_KUBECONFIG=$(KUBECONFIG) $(GO) test -count=1 -timeout 45m ./...
else
	$(UP)
	IDLECOUNT_TEST_CLUSTER=required $(GO) test -count=1 -timeout 45m ./...
endif

.PHONY: test-unit
test-unit: ## the tests that need no cluster (the others skip, and say so)
	$(GO) test ./...

.PHONY: test-cluster
test-cluster: ## the local cluster's tests that take it down and break it for good; nothing else may use it meanwhile
	IDLECOUNT_CLUSTER_DESTRUCTIVE=1 $(GO) test -count=1 -timeout 30m ./e2e/cluster

.PHONY: bench-jobstart
bench-jobstart: build ## time from the driver's first call to the build script's first byte, warm and cold alternating
	$(UP)
	$(GO) run ./e2e/cmd/bench-jobstart

.PHONY: bench-pool
bench-pool: build ## the manager with 5,000 idle pods on KWOK nodes: creates, refill, memory, CPU, API requests; some minutes
	$(UP)
	$(GO) run ./e2e/cmd/bench-pool

.PHONY: chaos
chaos: ## 5,000 idle pods, managers killed ten times, lagging watches, 50 jobs at a time; the short form is in `make test`
	$(UP)
	IDLECOUNT_TEST_CLUSTER=required $(GO) test -count=1 -timeout 60m -v -run '^TestChaos$$' ./e2e/chaos -long $(if $(SEED),-seed $(SEED))

.PHONY: verify
verify: ## what CI checks besides the tests: tidy, format, vet, lint
	$(GO) mod tidy -diff
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted: run make fmt" >&2; gofmt -l $$(git ls-files '*.go') >&2; exit 1; }
	$(GO) vet ./...
	@$(MAKE) --no-print-directory lint

.PHONY: lint
lint: ## golangci-lint, pinned; where it can't be fetched that is said, and vet has to do
	@if test -x bin/golangci-lint-v2.15.0 || { mkdir -p bin/tools && GOBIN=$(CURDIR)/bin/tools $(GO) install $(GOLANGCI_LINT) && mv bin/tools/golangci-lint bin/golangci-lint-v2.15.0; }; \
	then bin/golangci-lint-v2.15.0 run ./...; else echo "golangci-lint could not be fetched: only vet was run" >&2; fi

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w $$(git ls-files '*.go')

.PHONY: build
build: ## the three binaries into bin/
	@mkdir -p bin
	$(STATIC) -o bin/idlecount .
	$(STATIC) -o bin/idlecount-executor ./executor-plugin
	$(STATIC) -o bin/entrypoint ./entrypoint

.PHONY: images
images: ## the manager's and the entrypoint's image, pushed to REGISTRY=registry.example.com/ci; their names are printed
	@$(GO) run ./e2e/cmd/images "$(REGISTRY)"

.PHONY: golden
golden: ## write the golden files anew from what the code makes now; look at the diff
	$(GO) test ./config ./factory ./internal/cli -update

.PHONY: cluster-up
cluster-up: ## the local cluster alone
	@$(UP)

.PHONY: cluster-down
cluster-down: ## stop the local cluster and remove all that it left on the machine
	@$(GO) run ./e2e/cmd/cluster down

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
