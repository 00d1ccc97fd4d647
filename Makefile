# Every target runs on a plain POSIX sh. CI runs the same ones: see .ci/run.

GO       ?= go
PACKAGES ?= ./...
FUZZTIME ?= 30s
BENCH    ?= .

# On two cores with an empty build cache most of the time of "make test" goes into compiling. So all
# that it builds is built with the race detector, once; vetting is left to "make lint"; and, as many
# tests wait for servers more than they compute, three packages are tested at a time. The faults
# come after them: their cases say how soon all is well again, and get the machine to themselves.

# A checkout that belongs to somebody else has no version to stamp into a program.
export GOFLAGS += -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: help test race lint explore faults fuzz bench demo

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-9s %s\n", $$1, $$2 }' Makefile

test: ## Run all tests with private services; installs these first where it can (Debian, root)
	@sh internal/testenv/install.sh
	@mkdir -p bin
	@$(GO) build -race -o bin/testenv ./internal/testenv/cmd/testenv
	@all=$$($(GO) list $(PACKAGES)) || exit 1; \
	timed=$$(echo "$$all" | grep '/internal/faults$$'); rest=$$(echo "$$all" | grep -v '/internal/faults$$'); \
	if [ -n "$$rest" ]; then LEVERET_REQUIRE_SERVICES=1 bin/testenv $(GO) test -race -vet=off -p 3 -timeout 12m $$rest || exit 1; fi; \
	if [ -n "$$timed" ]; then LEVERET_REQUIRE_SERVICES=1 bin/testenv $(GO) test -race -vet=off -timeout 12m $$timed; fi

race: ## Run all tests; those whose service is missing are skipped
	$(GO) test -race -timeout 10m $(PACKAGES)

lint: ## Check format, vet and staticcheck; silent when all is well
	@files=$$({ git ls-files -co --exclude-standard -- '*.go' 2>/dev/null || find . -name '*.go'; } | \
		sort -u | while IFS= read -r f; do if [ -f "$$f" ]; then echo "$$f"; fi; done); \
	if [ -z "$$files" ]; then exit 0; fi; \
	bad=$$(gofmt -l $$files) || exit 1; \
	if [ -n "$$bad" ]; then echo "not formatted:"; echo "$$bad"; exit 1; fi
	@$(GO) vet $(PACKAGES)
	@$(GO) tool staticcheck $(PACKAGES)

explore: ## Explore the state machine in full (up to an hour)
	LEVERET_EXPLORE=full $(GO) test -run '^TestMachineExplored' -timeout 60m -v ./saga

faults: ## Try every fault on real servers and processes, or FAULT=name; goes on where it was; FORCE=1 from the start
	@sh internal/testenv/install.sh
	@mkdir -p bin
	@$(GO) build -race -o bin/testenv ./internal/testenv/cmd/testenv
	@$(GO) test -race -vet=off -c -o bin/faults.test ./internal/faults
	@LEVERET_REQUIRE_SERVICES=1 LEVERET_FAULTS="$${FAULT:-all}" LEVERET_FAULTS_FILE="$${FAULTS_FILE:-$(CURDIR)/bin/faults.json}" \
		LEVERET_FAULTS_COMMIT="$$(git describe --always --dirty 2>/dev/null)" \
		bin/testenv bin/faults.test -test.run '^TestFaults$$' -test.parallel 2 -test.timeout 0

fuzz: ## Fuzz every fuzz test for FUZZTIME (30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while IFS= read -r file; do \
		for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$f in $$(dirname "$$file")"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
		done; \
	done

bench: ## Run the benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(PACKAGES)

demo: ## Run the demo
	$(GO) run ./cmd/saga-demo
