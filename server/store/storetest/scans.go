package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

// expectScan compares a scan with what a sorted list of keys says.
func expectScan(t *testing.T, s store.Store, all []string, r store.Range) {
	t.Helper()
	var want []string
	for _, k := range all {
		if strings.HasPrefix(k, string(r.Prefix)) && (r.After == nil || k > string(r.After)) {
			want = append(want, k)
		}
	}
	got := scanStore(t, s, r)
	for i := range min(len(got), len(want)) {
		if string(got[i].Key) != want[i] {
			t.Fatalf("range with prefix %s after %s: row %d is %s, want %s", short(r.Prefix), short(r.After), i, short(got[i].Key), short([]byte(want[i])))
		}
		if !r.KeysOnly && string(got[i].Value) != "v"+want[i] {
			t.Fatalf("row %s has %s", short(got[i].Key), short(got[i].Value))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("range with prefix %s after %s: %d rows, want %d", short(r.Prefix), short(r.After), len(got), len(want))
	}
}

// putKeys writes rows for keys, in random order, and returns the keys sorted.
func putKeys(t *testing.T, s store.Store, keys []string) []string {
	t.Helper()
	slices.Sort(keys)
	keys = slices.Compact(keys)
	rows := make([]store.Row, len(keys))
	for i, k := range keys {
		rows[i] = row(1, 2, 3, k, "v"+k)
	}
	rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	put(t, s, rows...)
	return keys
}

func testScanRanges(t *testing.T, s store.Store) {
	keys := putKeys(t, s, []string{"", "\x00", "\x00\x00", "a", "a\x00", "aa", "ab", "ab\xff", "ab\xff\xff", "ac", "b", "\xfe", "\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff"})
	put(t, s, row(1, 1, 3, "a", "other group"), row(1, 3, 3, "a", "other group"), row(1, 2, 2, "a", "other state"), row(1, 2, 4, "a", "other state"), row(2, 2, 3, "a", "other space"))
	prefixes := append([]string{"x", "ab\xff\xff\xff"}, keys...)
	for _, prefix := range prefixes {
		expectScan(t, s, keys, store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte(prefix)})
		for _, after := range prefixes {
			expectScan(t, s, keys, store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte(prefix), After: []byte(after)})
			expectScan(t, s, keys, store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte(prefix), After: []byte(after), MaxRows: 2, KeysOnly: true})
		}
	}
	page, err := s.Scan(t.Context(), store.Range{Space: 1, Group: 9, State: 3})
	if err != nil || len(page.Rows) != 0 || !page.Done {
		t.Errorf("an empty range: %d rows, done %v (%v)", len(page.Rows), page.Done, err)
	}
	page, err = s.Scan(t.Context(), store.Range{Space: 1, Group: 2, State: 3, MaxRows: len(keys)})
	if err != nil || len(page.Rows) != len(keys) || !page.Done {
		t.Errorf("a page that just holds the range: %d rows, done %v (%v)", len(page.Rows), page.Done, err)
	}
}

func testScanPages(t *testing.T, s store.Store) {
	var rows []store.Row
	for i := range 3000 {
		r := row(1, 2, 3, fmt.Sprintf("%05d", i), "")
		r.Value = filled(10+i%1000, uint64(i))
		if i%500 == 250 {
			r.Value = filled(100000, uint64(i))
		}
		rows = append(rows, r)
	}
	put(t, s, rows...)
	for _, r := range []store.Range{{}, {MaxRows: 1000, MaxBytes: 1 << 30}, {MaxRows: 7}, {MaxBytes: 50000}, {MaxRows: 100000, MaxBytes: 1 << 30}} {
		r.Space, r.Group, r.State = 1, 2, 3
		if r.MaxRows == 7 {
			r.Prefix = []byte("01")
		}
		got := scanStore(t, s, r)
		want := rows
		if r.Prefix != nil {
			want = rows[1000:2000]
		}
		if len(got) != len(want) {
			t.Fatalf("range %+v: %d rows, want %d", r, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i].Key, want[i].Key) || !bytes.Equal(got[i].Value, want[i].Value) {
				t.Fatalf("range %+v: row %d is %s with %s", r, i, short(got[i].Key), short(got[i].Value))
			}
		}
	}
	page, err := s.Scan(t.Context(), store.Range{Space: 1, Group: 2, State: 3, MaxBytes: 1})
	if err != nil || len(page.Rows) != 1 {
		t.Errorf("a page must have one row, however large: %d (%v)", len(page.Rows), err)
	}
}

// testLongKeys has keys that differ only far behind.
func testLongKeys(t *testing.T, s store.Store) {
	var keys []string
	for _, n := range []int{767, 768, 769, 2000, 3072} {
		base := strings.Repeat("k", n)
		keys = append(keys, base, base[:n-1]+"l")
		for i := range 30 {
			keys = append(keys, fmt.Sprintf("%s%03d", base, i*7%30))
		}
	}
	keys = append(keys, strings.Repeat("\xff", 900), strings.Repeat("\xff", 901), strings.Repeat("\xff", 768), "z", "")
	keys = putKeys(t, s, keys)
	for _, prefix := range []string{"", "k", strings.Repeat("k", 767), strings.Repeat("k", 768), strings.Repeat("k", 2000) + "00", "\xff", strings.Repeat("\xff", 900)} {
		for _, rows := range []int{1, 13, 1000} {
			expectScan(t, s, keys, store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte(prefix), MaxRows: rows, KeysOnly: rows == 1})
		}
	}
}
