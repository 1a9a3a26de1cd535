package lineage

import (
	"context"
	"errors"
	"fmt"
)

const (
	// clearRows and clearBytes bound what a transaction removes for the clearing of maps, give or take a page.
	// Databases bound the row operations of a transaction (NDB: MaxNoOfConcurrentOperations, 32,768 unless configured
	// otherwise), and rows that a snapshot needs are kept in memory until it commits.
	clearRows  = 4096
	clearBytes = 16 << 20
	// firstClearedPage is how many rows are looked at first; pages grow while what they hold is small.
	firstClearedPage = 64
)

// errLargeClear says that a frame removes too much for one transaction.
var errLargeClear = errors.New("the frame clears more than one transaction may")

// clearedRows counts what a transaction has removed by prefixes.
type clearedRows struct{ rows, bytes int }

func (c clearedRows) enough(limit clearedRows) bool {
	return c.rows >= limit.rows || c.bytes >= limit.bytes
}

// clearing removes the visible rows below prefixes, page by page.
type clearing struct {
	prefixes []*Entry // those that are not yet empty
	after    []byte   // the last row that was removed below the first of them
	pageRows int
}

// page removes some rows below the first prefix; when no more are left, the next prefix is up.
func (c *clearing) page(w *writing) error {
	e := c.prefixes[0]
	if c.pageRows == 0 {
		c.pageRows = min(firstClearedPage, w.s.l.clearAtOnce.rows)
	}
	scan, err := newGroupScan(w.s.attached, txReader{w.tx}, e.State, e.Group, e.Key, c.after, c.pageRows)
	if err != nil {
		return err
	}
	scan.keysOnly = true
	var page []Entry
	for len(page) < c.pageRows {
		row, ok, err := scan.next()
		if err != nil {
			return fmt.Errorf("clear: %w", err)
		}
		if !ok {
			break
		}
		page = append(page, Entry{State: e.State, Group: e.Group, Op: OpDelete, Key: row.Key})
	}
	if len(page) == 0 {
		c.nextPrefix()
		return nil
	}
	before := w.loadedBytes
	if err := w.applyPlain(page); err != nil {
		return err
	}
	loaded := w.loadedBytes - before
	c.after = page[len(page)-1].Key
	if len(page) < c.pageRows { // no look for what is known not to be there
		c.nextPrefix()
	}
	c.resize(loaded, w.s.l.clearAtOnce)
	w.cleared.rows += len(page)
	w.cleared.bytes += loaded
	return nil
}

func (c *clearing) nextPrefix() { c.prefixes, c.after = c.prefixes[1:], nil }

// resize chooses the size of the next page by what was read for the last one.
func (c *clearing) resize(loaded int, limit clearedRows) {
	switch {
	case loaded > limit.bytes/2:
		c.pageRows = max(c.pageRows/4, 1)
	case loaded < limit.bytes/8:
		c.pageRows = min(c.pageRows*2, pageRows, limit.rows)
	}
}

// deletePrefix removes all visible rows below a prefix.
func (w *writing) deletePrefix(e *Entry) error {
	c := clearing{prefixes: []*Entry{e}}
	for len(c.prefixes) > 0 {
		if w.cleared.enough(w.s.l.clearAtOnce) && !w.mayClearAll {
			return errLargeClear
		}
		if err := c.page(w); err != nil {
			return err
		}
	}
	return nil
}

// clearAhead removes what the frame clears, in transactions of a bounded size, before the frame is applied. That it may
// come before the other entries follows from what a clear is: changes that the frame makes below a prefix before it
// clears it are removed when the frame itself is applied, changes after that are then made again. The rows bear
// the frame's stamp. So a session that ends in between leaves what one leaves whose epoch was not completed; one that
// goes on sends the frame again, and finds fewer rows to remove.
func (f *frameWrite) clearAhead(ctx context.Context, entries []Entry) error {
	var left clearing
	for i := range entries {
		if entries[i].Op == OpDeletePrefix {
			left.prefixes = append(left.prefixes, &entries[i])
		}
	}
	for len(left.prefixes) > 0 {
		var next clearing
		if err := f.update(ctx, func(w *writing) error {
			w.partial = true
			next = left // the transaction may be tried again
			for len(next.prefixes) > 0 && !w.cleared.enough(w.s.l.clearAtOnce) {
				if err := next.page(w); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		left = next
	}
	return nil
}
