package lineage

import (
	"bytes"
	"errors"
	"testing"
)

func TestResolve(t *testing.T) {
	h := History{{Gen: 1, Last: 2}, {Gen: 3, Last: 9}}
	full := func(gen, epoch uint64, v string) version { return version{kindFull, stamp{gen, epoch}, []byte(v)} }
	add := func(gen, epoch uint64, v string) version { return version{kindAppend, stamp{gen, epoch}, []byte(v)} }
	gone := func(gen, epoch uint64) version { return version{kind: kindTombstone, stamp: stamp{gen, epoch}} }
	cases := []struct {
		name     string
		versions []version
		want     string
		found    bool
	}{
		{"nothing", nil, "", false},
		{"newest visible", []version{full(3, 4, "b"), full(1, 1, "a")}, "b", true},
		{"abandoned epoch", []version{full(1, 3, "b"), full(1, 2, "a")}, "a", true},
		{"foreign generation", []version{full(2, 1, "b"), full(1, 2, "a")}, "a", true},
		{"tombstone", []version{gone(3, 1), full(1, 1, "a")}, "", false},
		{"appends", []version{add(3, 2, "c"), add(3, 1, "b"), full(1, 1, "a")}, "a,b,c", true},
		{"append over an abandoned value", []version{add(3, 1, "b"), full(2, 1, "x"), full(1, 1, "a")}, "a,b", true},
		{"append over a tombstone", []version{add(3, 1, "b"), gone(1, 1)}, "b", true},
		{"empty value", []version{full(1, 1, "")}, "", true},
		{"append to an empty value", []version{add(3, 1, "b"), full(1, 1, "")}, ",b", true},
	}
	for _, c := range cases {
		var r resolution
		r.add(c.versions, h)
		if got := r.value(); string(got) != c.want || (got != nil) != c.found {
			t.Errorf("%s: found %q (%v), expected %q (%v)", c.name, got, got != nil, c.want, c.found)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	f.Add(encodeRow([]version{{kindFull, stamp{2, 3}, []byte("x")}, {kind: kindTombstone, stamp: stamp{1, 1}}}))
	f.Add([]byte{rowFormat})
	f.Add([]byte{rowFormat, 1, 1, 1, 200, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		versions, err := decodeRow(raw, nil)
		if err != nil {
			if !errors.Is(err, errCorruptRow) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeRow(encodeRow(versions), nil)
		if err != nil || len(again) != len(versions) {
			t.Fatalf("%v became %v: %v", versions, again, err)
		}
		for i := range again {
			if again[i].kind != versions[i].kind || again[i].stamp != versions[i].stamp || !bytes.Equal(again[i].value, versions[i].value) {
				t.Fatalf("%v became %v", versions[i], again[i])
			}
		}
	})
}
