package arrowcodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// ErrInvalid says that a frame is not what Encode makes.
var ErrInvalid = errors.New("invalid Arrow frame")

// Entry is one row of a frame.
type Entry struct {
	State uint16
	Group uint16
	Op    uint8
	Key   []byte
	Value []byte
}

// Columns of the schema.
const (
	colState = iota
	colGroup
	colOp
	colKey
	colValue
)

// Schema returns the schema of every frame: state: uint16, group: uint16, op: uint8, key: binary,
// value: binary, none nullable.
func Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "state", Type: arrow.PrimitiveTypes.Uint16},
		{Name: "group", Type: arrow.PrimitiveTypes.Uint16},
		{Name: "op", Type: arrow.PrimitiveTypes.Uint8},
		{Name: "key", Type: arrow.BinaryTypes.Binary},
		{Name: "value", Type: arrow.BinaryTypes.Binary},
	}, nil)
}

// Encoder makes frames. Not for concurrent use.
type Encoder struct {
	builder *array.RecordBuilder
}

// NewEncoder returns an encoder.
func NewEncoder() *Encoder {
	return &Encoder{builder: array.NewRecordBuilder(memory.NewGoAllocator(), Schema())}
}

// Encode makes one frame of the entries. All keys together, and all values, must stay below 2 GiB.
func (e *Encoder) Encode(entries []Entry) ([]byte, error) {
	states := e.builder.Field(colState).(*array.Uint16Builder)
	groups := e.builder.Field(colGroup).(*array.Uint16Builder)
	ops := e.builder.Field(colOp).(*array.Uint8Builder)
	keys := e.builder.Field(colKey).(*array.BinaryBuilder)
	values := e.builder.Field(colValue).(*array.BinaryBuilder)
	e.builder.Reserve(len(entries))
	keyBytes, valueBytes := 0, 0
	for i := range entries {
		keyBytes += len(entries[i].Key)
		valueBytes += len(entries[i].Value)
	}
	keys.ReserveData(keyBytes)
	values.ReserveData(valueBytes)
	for i := range entries {
		x := &entries[i]
		states.UnsafeAppend(x.State)
		groups.UnsafeAppend(x.Group)
		ops.UnsafeAppend(x.Op)
		keys.Append(x.Key)
		values.Append(x.Value)
	}
	record := e.builder.NewRecordBatch()
	defer record.Release()
	out := &payloadBuffer{}
	out.buf.Grow(keyBytes + valueBytes + 16*len(entries) + 1024)
	writer := ipc.NewWriterWithPayloadWriter(out, ipc.WithSchema(record.Schema()))
	if err := writer.Write(record); err != nil {
		return nil, fmt.Errorf("encode %d entries: %w", len(entries), err)
	}
	return out.buf.Bytes(), nil
}

// payloadBuffer keeps the record batch message and leaves out the schema before it.
type payloadBuffer struct {
	buf    bytes.Buffer
	schema bool
}

func (p *payloadBuffer) Start() error { return nil }

func (p *payloadBuffer) WritePayload(payload ipc.Payload) error {
	if !p.schema {
		p.schema = true
		return nil
	}
	_, err := payload.WritePayload(&p.buf)
	return err
}

func (p *payloadBuffer) Close() error { return nil }

// Decoder reads frames. Not for concurrent use.
type Decoder struct {
	limits Limits
	schema *memory.Buffer // metadata of the schema message that every frame stands behind
	feed   *feed
	reader *ipc.Reader
}

// Limits bound what a Decoder accepts.
type Limits struct {
	MaxRows  int // entries in a frame
	MaxBytes int // bytes of a frame
}

// NewDecoder returns a decoder.
func NewDecoder(limits Limits) (*Decoder, error) {
	var buf bytes.Buffer
	writer := ipc.NewWriter(&buf, ipc.WithSchema(Schema()))
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	_, meta, err := messageSizes(buf.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return &Decoder{limits: limits, schema: memory.NewBufferBytes(meta)}, nil
}

// feed hands messages to Arrow's stream reader, one at a time.
type feed struct{ next *ipc.Message }

func (f *feed) Message() (*ipc.Message, error) {
	if f.next == nil {
		return nil, io.EOF
	}
	message := f.next
	f.next = nil
	return message, nil
}

func (f *feed) Retain()  {}
func (f *feed) Release() {}

// Decode reads a frame. Keys and values point into it: the frame must not change afterwards.
func (d *Decoder) Decode(frame []byte) (entries []Entry, err error) {
	if len(frame) > d.limits.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, allowed are %d", ErrInvalid, len(frame), d.limits.MaxBytes)
	}
	// What the checks below let through must not be able to end the server by a panic.
	defer func() {
		if p := recover(); p != nil {
			entries, err = nil, fmt.Errorf("%w: %v", ErrInvalid, p)
		}
		if err != nil {
			d.reader = nil // it remembers its failure
		}
	}()
	metaEnd, metaBytes, err := messageSizes(frame)
	if err != nil {
		return nil, err
	}
	meta, err := d.checkMeta(metaBytes, len(frame)-metaEnd)
	if err != nil {
		return nil, err
	}
	record, err := d.read(metaBytes, frame[metaEnd:])
	if err != nil {
		return nil, err
	}
	return toEntries(record, int(meta.rows))
}

// read has Arrow's library make a record batch of a message.
func (d *Decoder) read(meta, body []byte) (arrow.RecordBatch, error) {
	if d.reader == nil {
		d.feed = &feed{next: ipc.NewMessage(d.schema, memory.NewBufferBytes(nil))}
		reader, err := ipc.NewReaderFromMessageReader(d.feed)
		if err != nil {
			return nil, fmt.Errorf("read the schema: %w", err)
		}
		d.reader = reader
	}
	d.feed.next = ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body))
	if !d.reader.Next() {
		return nil, fmt.Errorf("%w: no record batch: %w", ErrInvalid, errOrEOF(d.reader.Err()))
	}
	return d.reader.RecordBatch(), nil
}

func errOrEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// checkMeta verifies what a frame says of itself before anything is allocated by it.
func (d *Decoder) checkMeta(raw []byte, body int) (batchMeta, error) {
	meta, err := readBatchMeta(raw)
	if err != nil {
		return batchMeta{}, err
	}
	if meta.bodyLength != int64(body) {
		return batchMeta{}, fmt.Errorf("%w: body of %d bytes, the frame has %d", ErrInvalid, meta.bodyLength, body)
	}
	if meta.rows < 0 || meta.rows > int64(d.limits.MaxRows) {
		return batchMeta{}, fmt.Errorf("%w: %d rows, allowed are %d", ErrInvalid, meta.rows, d.limits.MaxRows)
	}
	return meta, nil
}

// messageSizes reads the envelope of an IPC message: where its metadata ends, and the metadata.
func messageSizes(frame []byte) (int, []byte, error) {
	const envelope = 8
	if len(frame) < envelope || binary.LittleEndian.Uint32(frame) != 0xFFFFFFFF {
		return 0, nil, fmt.Errorf("%w: no continuation marker", ErrInvalid)
	}
	n := int64(int32(binary.LittleEndian.Uint32(frame[4:])))
	if n <= 0 || n > int64(len(frame)-envelope) {
		return 0, nil, fmt.Errorf("%w: metadata of %d bytes in a frame of %d", ErrInvalid, n, len(frame))
	}
	return envelope + int(n), frame[envelope : envelope+n], nil
}

func toEntries(record arrow.RecordBatch, n int) ([]Entry, error) {
	states, ok1 := record.Column(colState).(*array.Uint16)
	groups, ok2 := record.Column(colGroup).(*array.Uint16)
	ops, ok3 := record.Column(colOp).(*array.Uint8)
	keys, ok4 := record.Column(colKey).(*array.Binary)
	values, ok5 := record.Column(colValue).(*array.Binary)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || int(record.NumRows()) != n {
		return nil, fmt.Errorf("%w: unexpected columns", ErrInvalid)
	}
	for _, column := range record.Columns() {
		if column.NullN() != 0 {
			return nil, fmt.Errorf("%w: null values", ErrInvalid)
		}
	}
	if err := checkOffsets("key", keys, n); err != nil {
		return nil, err
	}
	if err := checkOffsets("value", values, n); err != nil {
		return nil, err
	}
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{states.Value(i), groups.Value(i), ops.Value(i), keys.Value(i), values.Value(i)}
	}
	return entries, nil
}

// checkOffsets verifies that the offsets of a binary column ascend within its data.
func checkOffsets(name string, column *array.Binary, n int) error {
	if n == 0 {
		return nil
	}
	offsets := column.ValueOffsets()
	if len(offsets) < n+1 {
		return fmt.Errorf("%w: column %s has %d offsets for %d rows", ErrInvalid, name, len(offsets), n)
	}
	last := int32(0)
	for i, o := range offsets[:n+1] {
		if o < last {
			return fmt.Errorf("%w: column %s: offset %d is %d after %d", ErrInvalid, name, i, o, last)
		}
		last = o
	}
	buffers := column.Data().Buffers()
	size := 0
	if buffers[2] != nil {
		size = buffers[2].Len()
	}
	if int(last) > size {
		return fmt.Errorf("%w: column %s: offset %d beyond %d bytes of data", ErrInvalid, name, last, size)
	}
	return nil
}
