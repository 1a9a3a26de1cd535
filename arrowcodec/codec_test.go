package arrowcodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

var testLimits = Limits{MaxRows: 1 << 16, MaxBytes: 1 << 26}

func newDecoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := NewDecoder(testLimits)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func equal(a, b Entry) bool {
	return a.State == b.State && a.Group == b.Group && a.Op == b.Op && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

func TestRoundTrip(t *testing.T) {
	encoder, decoder := NewEncoder(), newDecoder(t)
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Entry {
			return Entry{
				State: rapid.Uint16().Draw(t, "state"), Group: rapid.Uint16().Draw(t, "group"), Op: rapid.Uint8().Draw(t, "op"),
				Key: rapid.SliceOf(rapid.Byte()).Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
			}
		})).Draw(t, "entries")
		frame, err := encoder.Encode(entries)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := decoder.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		if len(decoded) != len(entries) {
			t.Fatalf("%d entries became %d", len(entries), len(decoded))
		}
		for i := range entries {
			if !equal(entries[i], decoded[i]) {
				t.Fatalf("entry %d: %v became %v", i, entries[i], decoded[i])
			}
		}
	})
}

func sampleFrame(t testing.TB) []byte {
	t.Helper()
	frame, err := NewEncoder().Encode([]Entry{
		{State: 1, Group: 2, Op: 1, Key: []byte("key"), Value: []byte("value")},
		{State: 3, Group: 4, Op: 2, Key: []byte("k"), Value: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestTruncated(t *testing.T) {
	frame, decoder := sampleFrame(t), newDecoder(t)
	for n := range len(frame) {
		if _, err := decoder.Decode(frame[:n]); !errors.Is(err, ErrInvalid) {
			t.Fatalf("first %d of %d bytes: %v", n, len(frame), err)
		}
	}
	if _, err := decoder.Decode(frame); err != nil {
		t.Fatalf("the decoder must still work: %v", err)
	}
}

func TestLimits(t *testing.T) {
	frame := sampleFrame(t)
	for _, limits := range []Limits{{MaxRows: 1, MaxBytes: 1 << 20}, {MaxRows: 10, MaxBytes: len(frame) - 1}} {
		decoder, err := NewDecoder(limits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decoder.Decode(frame); !errors.Is(err, ErrInvalid) {
			t.Fatalf("%+v: %v", limits, err)
		}
	}
}

func TestDescendingOffsets(t *testing.T) {
	frame, decoder := sampleFrame(t), newDecoder(t)
	// The key offsets 0, 3, 4 stand in the body as little-endian int32.
	want := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0), 3), 4)
	at := bytes.Index(frame, want)
	if at < 0 {
		t.Fatal("no offsets in the frame")
	}
	for _, bad := range []uint32{0xFFFFFFFF, 5, 1 << 30} {
		hostile := bytes.Clone(frame)
		binary.LittleEndian.PutUint32(hostile[at+4:], bad)
		if _, err := decoder.Decode(hostile); !errors.Is(err, ErrInvalid) {
			t.Fatalf("offset %#x: %v", bad, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sampleFrame(f))
	f.Add([]byte{})
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	empty, err := NewEncoder().Encode(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(empty)
	decoder := newDecoder(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		entries, err := decoder.Decode(frame)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("not an ErrInvalid: %v", err)
			}
			return
		}
		size := 0
		for _, e := range entries {
			size += len(e.Key) + len(e.Value)
		}
		// Columns may overlap in a hostile frame, but no column can hold more than the frame.
		if size > 2*len(frame) {
			t.Fatalf("%d bytes of entries from a frame of %d", size, len(frame))
		}
	})
}

func benchmarkEntries(rows int) []Entry {
	entries := make([]Entry, rows)
	for i := range entries {
		entries[i] = Entry{State: 1, Group: uint16(i % 128), Op: 1, Key: binary.BigEndian.AppendUint64(make([]byte, 16), uint64(i)), Value: make([]byte, 100)}
	}
	return entries
}

func BenchmarkEncode1000(b *testing.B) {
	entries, encoder := benchmarkEntries(1000), NewEncoder()
	for b.Loop() {
		if _, err := encoder.Encode(entries); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode1000(b *testing.B) {
	frame, err := NewEncoder().Encode(benchmarkEntries(1000))
	if err != nil {
		b.Fatal(err)
	}
	decoder := newDecoder(b)
	for b.Loop() {
		if _, err := decoder.Decode(frame); err != nil {
			b.Fatal(err)
		}
	}
}
