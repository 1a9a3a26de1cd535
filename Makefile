# FlinkNDB: `make` prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/flinkndb/flinkndb/server/cmd.version=$(VERSION)
GRADLE ?= gradle --quiet --no-daemon
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help

help: ## this menu
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## install what is missing: Gradle, Flink
	@scripts/install-gradle
	@scripts/install-flink

build: server jars ## build everything into dist/

server: ## build dist/flinkndb
	@mkdir -p dist
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o dist/flinkndb ./server

jars: ## build dist/*.jar
	@scripts/install-gradle
	$(GRADLE) dist

demo: ## run the demo job on real data (KEEP=1 keeps the cluster)
	@scripts/demo

test: ## run all tests (installs what is missing)
	@scripts/test

lint: ## gofmt, vet, staticcheck, Java format
	@scripts/lint

format: ## format Go and Java sources
	gofmt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')
	@scripts/java-format --replace

proto: ## generate the committed protobuf code
	proto/generate.sh

compare: install build ## the same jobs on hashmap, rocksdb and FlinkNDB (COMPARE="-rounds 5" adds flags)
	go run ./tests/compare $(COMPARE)

jmh: server ## single state operations on every backend (JMH="valueGet -p backend=ndb,rocksdb" chooses)
	@scripts/install-gradle
	$(GRADLE) writeBenchmarkClasspath
	java -Xmx4g --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED \
	    -Dflinkndb.server=$(CURDIR)/dist/flinkndb -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
	    -cp "$$(cat build/benchmark-classpath.txt)" org.openjdk.jmh.Main $(JMH)

ndb-up: ## start a real NDB cluster on this machine (DATA_NODES=1 REPLICAS=1)
	go run ./tests/ndb/cmd up

ndb-down: ## stop it
	go run ./tests/ndb/cmd down

chaos: install build ## random faults against a job that checks itself (MINUTES=60 SEED=1 RUN=TestChaosOnNDB)
	FLINKNDB_TEST_NDB=$$(go run ./tests/ndb/cmd find >&2 && echo 1 || echo 0) FLINKNDB_CHAOS_MINUTES=$(or $(MINUTES),5) FLINKNDB_CHAOS_SEED=$(SEED) \
	    go test -tags e2e -count 1 -timeout 0 -v -run '$(or $(RUN),TestChaos)' ./tests/e2e

soak: ## overload a server for long, and flood it (MINUTES=60)
	FLINKNDB_SOAK_MINUTES=$(or $(MINUTES),10) go test -count 1 -timeout 0 -v ./tests/soak

fuzz: ## run each fuzzer for a minute (FUZZTIME=1h)
	@scripts/fuzz $(or $(FUZZTIME),1m)

clean: ## remove what was built (downloads stay)
	rm -rf dist build .gradle

.PHONY: help install build server jars demo test lint format proto compare jmh ndb-up ndb-down chaos soak fuzz clean
