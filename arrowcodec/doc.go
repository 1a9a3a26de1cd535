// Package arrowcodec turns entries into Arrow IPC record batch messages and back. It does no I/O and
// knows no policy.
//
// A frame is one encapsulated RecordBatch message (continuation marker, metadata length, metadata,
// body) without the schema, which is fixed (see Schema): so a frame costs a few hundred bytes beside
// its data, and both sides can refuse whatever else arrives.
package arrowcodec
