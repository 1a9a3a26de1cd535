#!/usr/bin/env bash
# Regenerates the committed Go code of the wire contract. Needs protoc (Debian: protobuf-compiler);
# the two Go plugins are built at pinned versions.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$PWD/.cache/bin"
GOBIN="$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH="$bin:$PATH" protoc --proto_path=proto \
    --go_out=proto --go_opt=paths=source_relative \
    --go-grpc_out=proto --go-grpc_opt=paths=source_relative \
    flinkndb/v1/state.proto
