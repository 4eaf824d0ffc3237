# Headway. `make` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build up test check hunt simulate e2e bench conformance deps tools generate clean

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      := go
# With Go plugins, which kustomize can load and Headway never does, the linker must
# keep every method there is: 45 MB.
TAGS    := -tags kustomize_disable_go_plugin_support
EMBED   := cmd/headway/embedded
STATIC  := CGO_ENABLED=0 $(GO) build -trimpath

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/headway, with the keeper and the demo images inside
	@mkdir -p bin
	@$(STATIC) -ldflags '-s -w' -o bin/hello ./cmd/hello
	@$(STATIC) -ldflags '-s -w' -o $(EMBED)/headway-keeper ./cmd/headway-keeper
	@$(GO) run ./cmd/hello-image -program bin/hello -arch "$$($(GO) env GOARCH)" -out $(EMBED)/hello.tar
	@echo "Building headway (the first time, Kubernetes and etcd are compiled too: several minutes) …"
	@$(GO) build $(TAGS) -ldflags '$(LDFLAGS)' -o bin/headway ./cmd/headway
	@ls -l bin/headway | awk '{printf "bin/headway: %d MB\n", $$5/1e6}'

deps:
	@scripts/install-deps

up: deps build ## from a fresh machine to a running cluster with the demo deployed
	@exec scripts/up

test: deps build ## all tests: unit, store, containers, end to end (root)
	@scripts/test

e2e: deps build ## only the end-to-end tests
	@scripts/test ./e2e/...

check: build ## format, vet, lint, architecture, generated files, unit tests
	@scripts/check

hunt: deps build ## property tests and fuzz targets with new random seeds, RUNS times
	@scripts/hunt

bench: deps build ## measure, and print the table of docs/benchmarks.md
	@scripts/bench

conformance: deps build ## Kubernetes' own conformance specs, and a table of what passes: [FOCUS=regex] [SKIP=regex]
	@FOCUS='$(FOCUS)' SKIP='$(SKIP)' scripts/conformance

simulate: ## a whole cluster with faults, from seeds, until stopped: [SEED=N] [RUNS=N] [NODES=N]
	@SEED='$(SEED)' RUNS='$(RUNS)' NODES='$(NODES)' scripts/simulate

generate: ## write generated files anew
	@$(GO) generate ./...

clean: ## remove what build made
	@rm -rf bin $(EMBED)/headway-keeper $(EMBED)/hello.tar
