package bridge

import (
	"fmt"

	"github.com/flinkndb/flinkndb/arrowcodec"
	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
)

// inlineEntries is up to how many entries a frame carries as protobuf: below it the metadata of an
// Arrow message (about 450 bytes) weighs more than the entries.
const inlineEntries = 8

// batchCodec turns batches into entries and back. Not for concurrent use.
type batchCodec struct {
	limits  *pb.Limits
	encoder *arrowcodec.Encoder
	decoder *arrowcodec.Decoder
	scratch []arrowcodec.Entry
}

func newBatchCodec(limits *pb.Limits) (*batchCodec, error) {
	decoder, err := arrowcodec.NewDecoder(arrowcodec.Limits{
		MaxRows:  int(limits.GetMaxBatchRows()),
		MaxBytes: int(limits.GetMaxFrameBytes()),
	})
	if err != nil {
		return nil, err
	}
	return &batchCodec{limits: limits, encoder: arrowcodec.NewEncoder(), decoder: decoder}, nil
}

// decode returns the entries of a batch. They point into it.
func (c *batchCodec) decode(batch *pb.Batch) ([]lineage.Entry, error) {
	if len(batch.GetArrow()) == 0 {
		return c.fromProto(batch.GetEntries())
	}
	if len(batch.GetEntries()) > 0 {
		return nil, invalid("batch: entries and arrow are both set, allowed is one")
	}
	raw, err := c.decoder.Decode(batch.GetArrow())
	if err != nil {
		return nil, invalid("batch.arrow: " + err.Error())
	}
	entries := make([]lineage.Entry, len(raw))
	for i := range raw {
		entries[i] = lineage.Entry{
			State: raw[i].State, Group: raw[i].Group, Op: lineage.Op(raw[i].Op), Key: raw[i].Key, Value: raw[i].Value,
		}
	}
	return entries, nil
}

func (c *batchCodec) fromProto(raw []*pb.Entry) ([]lineage.Entry, error) {
	if len(raw) > int(c.limits.GetMaxBatchRows()) {
		return nil, invalid(fmt.Sprintf("batch: %d entries, allowed are %d", len(raw), c.limits.GetMaxBatchRows()))
	}
	entries := make([]lineage.Entry, len(raw))
	for i, e := range raw {
		if e.GetState() > 0xFFFF || e.GetGroup() > 0xFFFF || e.GetOp() < 0 || e.GetOp() > 4 {
			return nil, invalid(fmt.Sprintf("batch: entry %d: state %d, group %d or op %d is out of range", i, e.GetState(), e.GetGroup(), e.GetOp()))
		}
		entries[i] = lineage.Entry{
			State: uint16(e.GetState()), Group: uint16(e.GetGroup()), Op: lineage.Op(e.GetOp()), Key: e.GetKey(), Value: e.GetValue(),
		}
	}
	return entries, nil
}

// encode makes a batch of entries.
func (c *batchCodec) encode(entries []lineage.Entry) (*pb.Batch, error) {
	if len(entries) <= inlineEntries {
		batch := &pb.Batch{Entries: make([]*pb.Entry, len(entries))}
		for i := range entries {
			e := &entries[i]
			batch.Entries[i] = &pb.Entry{State: uint32(e.State), Group: uint32(e.Group), Op: pb.Op(e.Op), Key: e.Key, Value: e.Value}
		}
		return batch, nil
	}
	c.scratch = c.scratch[:0]
	for i := range entries {
		e := &entries[i]
		c.scratch = append(c.scratch, arrowcodec.Entry{State: e.State, Group: e.Group, Op: uint8(e.Op), Key: e.Key, Value: e.Value})
	}
	frame, err := c.encoder.Encode(c.scratch)
	clear(c.scratch)
	if err != nil {
		return nil, err
	}
	return &pb.Batch{Arrow: frame}, nil
}

// split returns how many of the entries fit into one frame: all that stay within the soft limit, but
// at least one.
func split(entries []lineage.Entry, softBytes, maxRows int) int {
	size := 0
	for i := range entries {
		size += len(entries[i].Key) + len(entries[i].Value) + 16
		if i > 0 && (size > softBytes || i >= maxRows) {
			return i
		}
	}
	return len(entries)
}
