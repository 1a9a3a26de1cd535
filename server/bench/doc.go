// Package bench measures a store: bulk get, put, scan, read-modify-write and snapshot-like writing,
// by batch size and concurrency. For MySQL stores it measures raw SQL of the same shape in turn with
// the store, in the same run, so that both see the same machine.
package bench
