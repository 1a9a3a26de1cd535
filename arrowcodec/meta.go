package arrowcodec

import (
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Field numbers and types of Arrow's Message.fbs, as far as a record batch goes
// (https://arrow.apache.org/docs/format/Columnar.html, format version 1.5).
const (
	messageHeaderType = 1 // vtable slots of Message
	messageHeader     = 2
	messageBodyLength = 3
	batchLength       = 0 // vtable slots of RecordBatch
	batchNodes        = 1
	batchBuffers      = 2
	batchCompression  = 3

	headerRecordBatch = 3
	structBytes       = 16 // of FieldNode and Buffer
	columns           = 5
	buffers           = 12 // validity and data of three, validity, offsets and data of two columns
)

// batchMeta is what the metadata of a record batch message says.
type batchMeta struct {
	rows       int64
	bodyLength int64
}

// readBatchMeta reads and verifies the metadata: one record batch, uncompressed, with the columns and
// buffers of our schema, which lie within the body.
func readBatchMeta(raw []byte) (batchMeta, error) {
	message := rootTable(raw)
	if kind := message.GetByteSlot(slot(messageHeaderType), 0); kind != headerRecordBatch {
		return batchMeta{}, fmt.Errorf("%w: message of type %d, only record batches (%d) are allowed", ErrInvalid, kind, headerRecordBatch)
	}
	batch, ok := unionField(message, messageHeader)
	if !ok {
		return batchMeta{}, fmt.Errorf("%w: no record batch header", ErrInvalid)
	}
	if batch.Offset(flatbuffers.VOffsetT(slot(batchCompression))) != 0 {
		return batchMeta{}, fmt.Errorf("%w: compressed", ErrInvalid)
	}
	meta := batchMeta{
		rows:       batch.GetInt64Slot(slot(batchLength), 0),
		bodyLength: message.GetInt64Slot(slot(messageBodyLength), 0),
	}
	nodes, n := structs(batch, batchNodes)
	if n != columns {
		return batchMeta{}, fmt.Errorf("%w: %d columns, expected %d", ErrInvalid, n, columns)
	}
	for i := range columns {
		length, nulls := pair(batch, nodes, i)
		if length != meta.rows || nulls != 0 {
			return batchMeta{}, fmt.Errorf("%w: column %d has %d rows and %d nulls, expected %d and 0", ErrInvalid, i, length, nulls, meta.rows)
		}
	}
	at, n := structs(batch, batchBuffers)
	if n != buffers {
		return batchMeta{}, fmt.Errorf("%w: %d buffers, expected %d", ErrInvalid, n, buffers)
	}
	for i := range buffers {
		offset, length := pair(batch, at, i)
		if offset < 0 || length < 0 || offset > meta.bodyLength || length > meta.bodyLength-offset {
			return batchMeta{}, fmt.Errorf("%w: buffer %d at %d of %d bytes lies outside of a body of %d", ErrInvalid, i, offset, length, meta.bodyLength)
		}
		if need := dataBytes(i, meta.rows); length < need {
			return batchMeta{}, fmt.Errorf("%w: buffer %d has %d bytes, %d rows need %d", ErrInvalid, i, length, meta.rows, need)
		}
	}
	return meta, nil
}

// dataBytes is the least size of a buffer for so many rows.
func dataBytes(buffer int, rows int64) int64 {
	switch buffer {
	case 1, 3: // data of state, group
		return 2 * rows
	case 5: // data of op
		return rows
	case 7, 10: // offsets of key, value
		if rows > 0 {
			return 4 * (rows + 1)
		}
	}
	return 0
}

func slot(field int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*field) }

func rootTable(raw []byte) *flatbuffers.Table {
	return &flatbuffers.Table{Bytes: raw, Pos: flatbuffers.GetUOffsetT(raw)}
}

func unionField(t *flatbuffers.Table, field int) (*flatbuffers.Table, bool) {
	at := t.Offset(slot(field))
	if at == 0 {
		return nil, false
	}
	union := &flatbuffers.Table{}
	t.Union(union, flatbuffers.UOffsetT(at))
	return union, true
}

// structs returns where a vector of structs starts, and how many there are.
func structs(t *flatbuffers.Table, field int) (flatbuffers.UOffsetT, int) {
	at := flatbuffers.UOffsetT(t.Offset(slot(field)))
	if at == 0 {
		return 0, 0
	}
	return t.Vector(at), t.VectorLen(at)
}

// pair reads the two numbers of a struct.
func pair(t *flatbuffers.Table, start flatbuffers.UOffsetT, i int) (int64, int64) {
	at := start + flatbuffers.UOffsetT(i*structBytes)
	return t.GetInt64(at), t.GetInt64(at + 8)
}
