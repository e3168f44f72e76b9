# The tasks of the project; `make` alone lists them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 2000x
TIMEOUT  ?= 40m
# How many tests of a package run at once: most of them wait for other programs.
PARALLEL ?= 5
# How many packages are built or tested at once: more than there are processors, for the same reason.
PACKAGES ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )))
VERSION   = $(shell tools/version.sh 2>/dev/null || echo dev)
TESTTMP   = TMPDIR=$(shell tools/test-tmp.sh)
# "make lint" and CI run go vet. No test needs the tables of debuggers.
TESTFLAGS = -vet=off -ldflags=-w -timeout $(TIMEOUT) -p $(PACKAGES) -parallel $(PARALLEL)
UNIT      = $(shell go list ./... | grep -v '/\(e2e\|deploy\)\(/\|$$\)')

# Tools are built with -trimpath. If all else is too, packages of the same version are compiled once.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)
# The program is built without cgo. internal/test/testrun turns cgo on where it runs the race detector, which needs it.
export CGO_ENABLED := 0

# Under make, a test whose program is missing fails, unless "make test" leaves it to "make test-all". Without make, it is skipped.
export OCIBRIDGE_TOOLS ?= required

.PHONY: help
help: ## list these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without version control stamps, because the version is set here and because
# they fail in a checkout that belongs to another user. The program is replaced
# only when it differs: a new modification time would make Go run again every
# test that uses it.
.PHONY: build
build: ## build the program: bin/ocibridge
	@mkdir -p bin
	go build -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/.new ./cmd/ocibridge
	@if cmp -s bin/.new bin/ocibridge; then rm bin/.new; else mv -f bin/.new bin/ocibridge; fi

.PHONY: tools
tools: ## obtain all clients, registries and checkers in .tools (a quarter of an hour, the first time)
	@tools/install.sh

TESTRUN = $(TESTTMP) go run ./internal/test/testrun $(if $(filter-out 0,$(RACE)),-race) -tools "$$(tools/test-tools.sh)"

# RACE=1 runs the packages' tests under the race detector. "make test-all" then runs only what is left.
.PHONY: test
test: build ## run the packages' tests and the main scenes end to end (minutes, the first time; RACE=1)
	@tools/install.sh registry provider-null-copies tofu-on-path terraform-on-path
	$(TESTRUN) test $(TESTFLAGS)

.PHONY: test-all
test-all: RACE = 1
test-all: tools build ## run all tests, under the race detector where that is possible (needs a C compiler)
	$(TESTRUN) all $(TESTFLAGS)

# It prints the seed of what is random; SEED repeats it.
.PHONY: test-faults
test-faults: tools build ## run the fault and kill tests in their long form: every fault at every step (SEED, KILLS)
	OCIBRIDGE_TESTS=all OCIBRIDGE_FAULTS=long OCIBRIDGE_KILLS=$(or $(KILLS),300) OCIBRIDGE_SEED=$(SEED) go test -count 1 -parallel 8 -timeout $(TIMEOUT) ./internal/test/faults ./internal/test/testkit/faultproxy ./internal/test/testkit/memnet
	OCIBRIDGE_TESTS=all OCIBRIDGE_FAULTS=long OCIBRIDGE_KILLS=$(or $(KILLS),300) OCIBRIDGE_SEED=$(SEED) go test -count 1 -v -timeout $(TIMEOUT) ./e2e -run 'Killed|RegistryStopped|Faults' -skip TestStoreKilled
	OCIBRIDGE_TESTS=all OCIBRIDGE_STORE_ROUNDS=20 go test -count 1 -v -timeout $(TIMEOUT) ./e2e -run TestStoreKilled
	OCIBRIDGE_TESTS=all OCIBRIDGE_FAULTS=long go test -count 1 -timeout $(TIMEOUT) ./pusher -run TestAnnouncementsModel
	OCIBRIDGE_TESTS=all OCIBRIDGE_GC_ROUNDS=500 OCIBRIDGE_SEED=$(SEED) go test -count 1 -v -timeout $(TIMEOUT) ./internal/registries/embedded -run TestGCKilled

.PHONY: soak
soak: tools build ## run the gateway at full load for SOAK (default 2m) while faults come and go, and print figures
	go run ./internal/test/soak -for $(or $(SOAK),2m) -seed $(or $(SEED),0)

.PHONY: cover
cover: tools ## run the unit tests, and print what of each package they cover (tools/cover.sh coverage.out PACKAGE: what not)
	OCIBRIDGE_TESTS=all go test -timeout $(TIMEOUT) -coverprofile coverage.out -coverpkg "$$(go list ./... | grep -vE '/(testkit|demo|bench|mutants|e2e|reference)(/|$$)' | paste -sd,)" $(UNIT)
	@tools/cover.sh coverage.out

.PHONY: lint
lint: ## check formatting, go vet and staticcheck
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt wants to change:"; echo "$$files"; exit 1; fi
	go vet ./...
	@tools/install.sh staticcheck
	.tools/bin/staticcheck ./...

# KEEP=1 leaves the gateway running until Ctrl-C.
.PHONY: demo
demo: ## do the whole main job, with tofu and terraform if they are on PATH, and show it (minutes, the first time; KEEP=1)
	@tools/demo.sh$(if $(filter-out 0,$(KEEP)), -keep)

.PHONY: bench
bench: tools build ## compare with bare servers and the ORAS CLI: one table (OCIBRIDGE_BENCH_MB: of each package pushed)
	@tools/install.sh provider-time
	go run ./internal/test/bench -package $(or $(OCIBRIDGE_BENCH_MB),10)

.PHONY: bench-unit
bench-unit: tools ## run the benchmarks of the packages
	go test -run '^$$' -bench . -benchmem $(UNIT)

# A crasher, which go test writes to testdata/fuzz, belongs into the commit.
.PHONY: fuzz
fuzz: ## run each fuzz test with 2,000 inputs (FUZZTIME=30s: for half a minute)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: fuzz-corpus
fuzz-corpus: ## take a handful of what make fuzz found to be new into testdata/fuzz
	@tools/fuzz-corpus.sh

.PHONY: mutants
mutants: ## remove one guard at a time, and show that a test fails for each
	go run ./internal/test/mutants

.PHONY: man
man: build ## write the manual pages: dist/man/man1
	bin/ocibridge man dist/man/man1

.PHONY: release
release: ## build the archives of a release, SBOMs and SHA256SUMS: dist/
	@tools/install.sh release
	rm -rf dist
	.tools/bin/release build -version '$(VERSION)' $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

.PHONY: release-check
release-check: ## build the last commit twice, and compare (PLATFORMS: of linux_amd64,..., all by default)
	@tools/install.sh release
	.tools/bin/release check $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

.PHONY: licences
licences: ## write docs/developers/licences.md: what is in the program, and under which licences
	@tools/install.sh release
	.tools/bin/release licences -update

# The database is asked over the network; GOVULNDB names another one.
.PHONY: vuln
vuln: ## look for known vulnerabilities in what the program calls, where their database can be reached
	@db=$${GOVULNDB:-https://vuln.go.dev}; \
	if curl -fsS --retry 2 -m 20 -o /dev/null "$$db/index/db.json"; then \
		tools/install.sh govulncheck && .tools/bin/govulncheck -db "$$db" ./cmd/...; \
	else \
		echo "vuln: SKIPPED: the database of vulnerabilities at $$db cannot be reached from here"; \
	fi

.PHONY: clean
clean: ## remove what was built, but for the tools (those: rm -r .tools)
	rm -rf bin dist coverage.* *.test
