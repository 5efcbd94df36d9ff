# Everything here needs Go, git and make, no more. `make help` lists the targets.

.DEFAULT_GOAL := help

# An older Go fetches the version that go.mod names, also where an image says "local".
export GOTOOLCHAIN := auto

GO      ?= go
# The product is plain Go; the race detector alone needs a C compiler. Without
# -trimpath a build shares its cache with `go test`, which saves compiling the
# Temporal server twice; `make release` has it.
GOBUILD := CGO_ENABLED=0 $(GO) build
# The build server's runner of tests tries once more what failed (.ci/gotest).
GOTEST  ?= $(GO) test
# Tests wait for servers and for other processes half of the time, so twice as many run at
# once as there are processors.
PARALLEL := -parallel=$(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
COMMANDS := ./cmd/... ./examples/calc/cmd/...
# golangci-lint and workflowcheck are pinned in modules of their own, because their
# dependencies have no business in the product's.
LINT          := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
WORKFLOWCHECK := $(GO) tool -modfile=tools/workflowcheck/go.mod workflowcheck

# The detector's pointer checks refuse the arithmetic of GoMLX's Go backend. SQLite, which is C turned into Go, is left
# out of the detector: it takes most of the time and has no code of ours. Packages that instantiate generic types of
# others can't be left out like this, because the linker keeps one instance for all.
# What is compiled without the detector must not allocate by Go 1.26's functions for one size: they don't tell the
# detector that memory has a new owner, which it then takes for a race with the owner before.
# Tests that build something build it as users do.
RACEENV   := CGO_ENABLED=1 GOEXPERIMENT=nosizespecializedmalloc
RACEFLAGS := -gcflags='github.com/gomlx/compute/...=-d=checkptr=0' -gcflags='modernc.org/...=-race=false' -exec='env -u GOEXPERIMENT'
# The Temporal server, which takes longer still, runs beside it in a process of its own.
RACEFLAGS += -tags=serverprocess -ldflags='-X github.com/fulgurite/fulgurite/internal/devserver.program=$(CURDIR)/bin/temporal-server'

BENCH          ?= .
BENCH_PACKAGES ?= ./credit/... ./dialog/... ./gateway/... ./run/report/... ./model/... ./store/... ./testsuite/...

##@ Use

.PHONY: demo
demo: build ## Learn to use a calculator: reward curve in a few minutes, nothing to install
	@bin/fulgurite demo

# The seeds of `make lesson`, one run each.
SEEDS ?= 1

.PHONY: lesson
lesson: build ## Teach SmolLM2 to use a calculator: a real language model, on two cores; SEEDS="1 2 3" (python3.11)
	@examples/smollm/run $(SEEDS)

.PHONY: sql
sql: build ## Teach Qwen2.5-Coder-0.5B SQL, measured against untrained controls; DATA=folder of Spider, MODEL=file.gguf, PLAN=1 tells more (python3.11)
	@DATA="$(DATA)" MODEL="$(MODEL)" SHA256="$(SHA256)" PLAN="$(PLAN)" examples/sql/run

.PHONY: prompts
prompts: build ## Improve the prompts of an SQL agent by GEPA, on a gate that the search does not see; DATA, MODEL, PLAN as above, REFLECTOR=URL of a model's API (python3.11)
	@DATA="$(DATA)" MODEL="$(MODEL)" SHA256="$(SHA256)" PLAN="$(PLAN)" examples/prompts/run

.PHONY: math
math: build ## Teach Qwen2.5-Coder-0.5B to use a calculator, measured against untrained controls; DATA=folder of GSM8K, MODEL, PLAN as above (python3.11)
	@DATA="$(DATA)" MODEL="$(MODEL)" SHA256="$(SHA256)" PLAN="$(PLAN)" examples/math/run

.PHONY: build
build: ## Build bin/fulgurite, fulgurite-worker and calc-agent (minutes at first, then seconds)
	@mkdir -p bin
	@total=$$($(GO) list -deps $(COMMANDS) | wc -l); \
	{ $(GOBUILD) -v -o bin/ $(COMMANDS) 2>&1; echo "status $$?"; } | { \
	downloads=0; packages=0; told=; \
	while read -r line; do \
		case "$$line" in \
		"status "*) status=$${line#status } ;; \
		"go: downloading "*) downloads=$$((downloads + 1)) ;; \
		*[!a-zA-Z0-9._/~-]*) printf '%s\n' "$$line"; continue ;; \
		*) packages=$$((packages + 1)) ;; \
		esac; \
		if [ "$$packages" -eq 100 ] && [ -z "$$told" ]; then \
			told=yes; \
			printf '\rThe first build compiles the Temporal server and its Web UI: 5 to 8 minutes on two cores.\n'; \
		fi; \
		if [ $$((downloads + packages)) -eq 0 ]; then continue; fi; \
		if [ -t 1 ]; then printf '\rdownloaded %d modules, built %d of %d packages ' "$$downloads" "$$packages" $$total; \
		elif [ "$$packages" -gt 0 ] && [ $$((packages % 200)) -eq 0 ]; then printf 'built %d of %d packages\n' "$$packages" $$total; \
		fi; \
	done; \
	if [ -t 1 ] && [ $$((downloads + packages)) -gt 0 ]; then echo; fi; \
	exit "$$status"; }

.PHONY: release
release: ## Build archives for linux and macOS, amd64 and arm64, with SHA256SUMS and bills of materials, into dist/
	$(GO) run ./tools/release -out dist

.PHONY: clean
clean: ## Remove what was built or installed; runs and their data stay
	rm -rf bin dist .examples .exports .parity .tokenizers .torch .zoo

##@ Check

# What `make test` tests: packages, and a regular expression of tests.
PACKAGES ?= ./...
RUN      ?=

.PHONY: test
test: ## Run all tests as users build: without C; PACKAGES="./store/..." RUN=regexp chooses
	CGO_ENABLED=0 $(GOTEST) $(PARALLEL) -timeout=30m $(if $(RUN),-run='$(RUN)') $(PACKAGES)

# Under an emulator a test takes fifty times as long: these are the ones that compare bits and references.
KERNELTESTS := Kept|Agree|Softmax|Rotate|NotANumber|MatMul|Reference|DecodedLogprobs|ResumedTraining|EqualFingerprints|GreedyTakes

.PHONY: arm64
arm64: ## Test the kernels of arm64 in an emulator (Debian's qemu-user-static), build for linux/arm64 and macOS
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./model/engine/native/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./model/engine/native/...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -exec qemu-aarch64-static -run '$(KERNELTESTS)' ./model/engine/native/...

.PHONY: purego
purego: ## Test the CPU engine as it is on processors for which there is no assembly
	CGO_ENABLED=0 $(GO) test -tags purego -run '$(KERNELTESTS)' ./model/engine/native/...

.PHONY: race
race: ## Run the tests where goroutines meet with the race detector, in another order each time (needs a C compiler)
	$(GOBUILD) -o bin/temporal-server ./internal/devserver/server
	$(RACEENV) $(GOTEST) $(PARALLEL) -race $(RACEFLAGS) -vet=off -short -shuffle=on -timeout=40m $(or $(RACED),$$(.ci/raced))

# How long `make fuzz` runs each target, and which: a regular expression of their names.
T    ?= 30s
FUZZ ?= .

.PHONY: fuzz
fuzz: ## Fuzz what reads the bytes of others, each target for T=30s beyond its seeds; FUZZ=regexp chooses
	@failed=; \
	for package in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
		for target in $$(git grep -ho '^func Fuzz[A-Za-z0-9]*' -- "$$package/*_test.go" ":!$$package/*/*" | cut -d ' ' -f 2 | grep -E '$(FUZZ)'); do \
			echo "./$$package $$target"; \
			CGO_ENABLED=0 $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(T) ./$$package || failed="$$failed $$target"; \
		done; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

.PHONY: replay
replay: ## Replay the kept workflow histories: does new code still continue old runs?
	CGO_ENABLED=0 $(GO) test -count=1 -run 'Replay' ./testsuite/...

# Whom, how often and where `make chaos` kills; JSON names the file of its report.
KILLS   ?= 100
SEED    ?= 1
STORE   ?= postgres
JOURNAL ?= on
JSON    ?=
# The scenarios of the runs, such as SCENARIOS=prompts; by default those of docs/chaos.md.
SCENARIOS ?=

.PHONY: chaos
chaos: build ## Kill a fleet while it trains; KILLS=100 SEED=1 STORE=postgres|sqlite JOURNAL=on|off SCENARIOS=names JSON=file
	CGO_ENABLED=0 $(GO) run ./testsuite/chaos -kills $(KILLS) -seed $(SEED) -store $(STORE) -journal $(JOURNAL) $(if $(SCENARIOS),-scenarios $(SCENARIOS)) $(if $(JSON),-json $(JSON))

.PHONY: setups
setups: build ## Hold plan and try to their word on setups that can't learn; SETUPS=regexp chooses (python3)
	CGO_ENABLED=0 $(GO) run ./testsuite/setups -only '$(SETUPS)'

.PHONY: golden
golden: ## Compute the golden vectors of package credit anew and compare them with the repository's (python3 with venv)
	credit/golden/run

.PHONY: parity
parity: ## Compare the engines with transformers on small models that it makes anew (python3 with venv; 4 GB)
	CGO_ENABLED=0 GO="$(GO)" testsuite/parity/golden/run

.PHONY: zoo
zoo: ## Compare small models as people have them with transformers and llama.cpp (python3 with venv; 4 GB); ALL=1 for all members
	CGO_ENABLED=0 GO="$(GO)" testsuite/parity/zoo/run $(if $(ALL),--all)

.PHONY: torch
torch: ## Hold engine torch to the engine native on the CPU, run the GPU script with tiny shapes, kill it in mid-step (python3 with venv; 4 GB); LONG=1 for more
	GO="$(GO)" GOTEST="$(GOTEST)" LONG="$(LONG)" model/engine/torch/check/run

.PHONY: tokenizers
tokenizers: ## Compare N=100000 hard strings for each kind of vocabulary with the reference (python3 with venv; 93 MB)
	CGO_ENABLED=0 GO="$(GO)" model/tokenizer/golden/run $(N)

.PHONY: golden-templates
golden-templates: ## Fetch the chat templates of published models and compare what we make of them with Python (python3 with venv; 80 MB)
	dialog/jinja/golden/fetch.sh
	CGO_ENABLED=0 $(GO) test -count=1 -v -run 'Fetched|OnRecord' ./dialog ./dialog/jinja

# Which setups `make setups` runs; all by default.
SETUPS ?=

# Which examples `make examples` installs and runs; all by default.
ONLY ?=

.PHONY: examples
examples: build ## Install and run the agents of other frameworks; ONLY="langgraph curl" chooses
	@examples/install $(ONLY)
	@$(GOBUILD) -o .examples/frameworks ./testsuite/frameworks
	@.examples/frameworks $(ONLY)
	@[ -n "$(ONLY)" ] || .examples/frameworks --folder testsuite/frameworks clients

.PHONY: gpu-bench
gpu-bench: ## Make dist/gpu-bench.tar.gz, which measures engine torch on a machine with a GPU and no Go or network (docs/benchmarks.md)
	GO="$(GO)" bench/gpu/pack

.PHONY: tasks
tasks: ## Install, run and train the agents of SQL, questions, math and Harbor's tasks, on small data sets of their own
	@$(MAKE) examples ONLY="sql questions math harbor"

.PHONY: bench
bench: ## Measure; BENCH=regexp chooses, BENCH_PACKAGES says where
	CGO_ENABLED=0 $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCH_PACKAGES)

# The browser of `make page`; Debian's by default.
BROWSER ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: page
page: ## Look at every page in a real browser, and act on a run: complaints, layout shift, light, dark and narrow (Debian's chromium)
	@[ -n "$(BROWSER)" ] || { echo "make page needs a browser: apt-get install chromium, or BROWSER=/path/to/chrome"; exit 1; }
	CGO_ENABLED=0 FULGURITE_BROWSER=$(BROWSER) $(GOTEST) -count=1 -timeout=8m -run=Browser ./page ./cmd/fulgurite

.PHONY: vet
vet: ## Look for mistakes that the compiler lets pass
	CGO_ENABLED=0 $(GO) vet ./...

.PHONY: lint
lint: ## Look for more of them (the linter itself builds for minutes at first)
	CGO_ENABLED=0 $(LINT) run ./...

.PHONY: workflowcheck
workflowcheck: ## Prove that workflows do nothing that a replay could see differently
	CGO_ENABLED=0 $(WORKFLOWCHECK) -config tools/workflowcheck/config.yaml ./workflows/...

.PHONY: ci
ci: ## All that a change must pass, as the build server runs it
	.ci/run

.PHONY: help
help: ## Show this list
	@while IFS= read -r line; do \
		case "$$line" in \
		"##@ "*) printf '\n%s\n' "$${line#\#\#@ }" ;; \
		[a-z]*:*"## "*) printf '  make %-15s %s\n' "$${line%%:*}" "$${line#*\#\# }" ;; \
		esac; \
	done < Makefile
