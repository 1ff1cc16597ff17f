# make demo   runs the main job on this machine, servers and all
# make test   vet, staticcheck, golangci-lint and every test
# make chaos  breaks a pool at random and checks it: SECONDS=60, SEED=… for the same plan again, LEASES=kubernetes for leases there
# make soak   runs a pool with rolling restarts and checks it: MINUTES=30
# make bench  measures it, beside other ways: ONLY=a,e for some sections, WRITE=1 to put the tables into docs/performance.md, SMOKE=1 to see
#             that it works, PROFILE=folder for CPU profiles, BENCH_FULL=1 for an hour of it
# make bench-lease  measures what a pool costs a Kubernetes API server: MEMBERS=100, PARTITIONS=1024
# make cluster      runs a control plane of Kubernetes on this machine to try things with
# All install what is missing. PG=16 picks another installed Postgres.

STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

export PG
export CGO_ENABLED ?= 1

.PHONY: build demo test lint unit stress bench chaos soak docs image clean bench-lease cluster

build:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/outlane ./cmd/outlane

demo:
	@./scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@./bin/outlane demo $(if $(KEEP),--keep)

test:
	@./scripts/setup.sh test
	@./internal/docsnippets/install.sh
	@go run ./internal/controlplane/cmd -build
	@$(MAKE) --no-print-directory lint unit stress

lint:
	go vet ./...
	go run $(STATICCHECK) ./...
	go run $(GOLANGCI_LINT) run --allow-parallel-runners ./...

unit:
	go test -race -timeout 20m $$(go list ./... | grep -v /stress)

# stress runs whole pools of processes through crashes, pauses and chaos; AWAY=3m keeps the Kubernetes API server away for longer. They get the machine for themselves.
stress:
	go test -race -timeout 30m ./stress $(if $(AWAY),-away $(AWAY))

bench: build
	@./scripts/setup.sh demo
	@./bin/outlane bench -o markdown --json bin/bench.json $(if $(SMOKE),--smoke) $(if $(ONLY),--only $(ONLY)) \
		$(if $(PROFILE),--profile $(PROFILE)) $(if $(WRITE),--write docs/performance.md)

chaos: build
	@./scripts/setup.sh test
	@go build -o bin/chaos ./internal/chaos/cmd
	@./bin/chaos -duration $(or $(SECONDS),60)s $(if $(SEED),-seed $(SEED)) $(if $(LEASES),-leases $(LEASES)) $(if $(DIR),-dir $(DIR))

soak: build
	@./scripts/setup.sh demo
	@go build -o bin/chaos ./internal/chaos/cmd
	@./bin/chaos -soak -duration $(or $(MINUTES),30)m $(if $(SEED),-seed $(SEED)) $(if $(DIR),-dir $(DIR))

# image writes bin/outlane-image.tar, an OCI archive for amd64 and arm64, and prints its digest, which is the same wherever it is built.
image:
	@go run ./internal/image/cmd -version '$(VERSION)' $(if $(IMAGE),-name '$(IMAGE)') $(if $(PLATFORMS),-platforms '$(PLATFORMS)') $(if $(OUT),-o '$(OUT)')

bench-lease:
	@go build -o bin/bench-lease ./internal/leasebench/cmd
	@./bin/bench-lease -members $(or $(MEMBERS),100) -partitions $(or $(PARTITIONS),1024)

# cluster, and every test that needs Kubernetes, builds it first: a quarter of an hour, once.
cluster:
	go run ./internal/controlplane/cmd

docs:
	go generate ./...

clean:
	rm -rf bin

include deploy.mk
