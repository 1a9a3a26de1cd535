// Package bridge is the gRPC side of the server: it turns calls and stream frames into calls of the
// lineage layer and its answers into frames. It knows streams, limits and credentials, never rows.
package bridge
