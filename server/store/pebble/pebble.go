// Package pebble is the embedded store: a store.Store in a folder of one machine, over
// github.com/cockroachdb/pebble.
package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/locktable"
)

const (
	maxKeyBytes   = 1 << 20
	maxValueBytes = 1 << 30
	// bloomBits of ten give about one false hit in a hundred; most keys that a job asks for and that
	// are not there then cost no disk read.
	bloomBits     = 10
	mib           = 1 << 20
	memTableBytes = 64 * mib
)

// Options are the settings of the store.
type Options struct {
	// CacheBytes is the size of the block cache. The default value is 256 MiB.
	CacheBytes int64
	Log        zerolog.Logger
	// Fatal ends the process after a failure that leaves the store unusable (a full or broken disk): a
	// restart recovers what was acknowledged, going on would not. The default value exits with code 1.
	Fatal func()
}

// Store keeps rows in Pebble.
type Store struct {
	dir   string
	log   logger
	db    *pebble.DB
	locks locktable.Table

	mu     sync.RWMutex // held shared by running calls, so that Close waits for them
	closed bool
}

// Open opens or makes the store in a folder. The folder is locked: one process at a time.
func Open(dir string, opt Options) (*Store, error) {
	if opt.CacheBytes == 0 {
		opt.CacheBytes = 256 * mib
	}
	if opt.Fatal == nil {
		opt.Fatal = func() { os.Exit(1) }
	}
	log := logger{opt.Log, dir, opt.Fatal}
	cache := pebble.NewCache(opt.CacheBytes)
	defer cache.Unref()
	settings := &pebble.Options{
		Cache:                       cache,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               256 * mib,
		Logger:                      log,
		EventListener:               &pebble.EventListener{BackgroundError: log.backgroundError, LowDiskSpace: log.lowDiskSpace},
	}
	for i := range settings.Levels {
		settings.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
	}
	db, err := pebble.Open(dir, settings)
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, mapError(err))
	}
	return &Store{dir: dir, log: log, db: db}, nil
}

// logger passes on what Pebble has to say; its Fatalf must not return.
type logger struct {
	log   zerolog.Logger
	dir   string
	fatal func()
}

func (l logger) Infof(format string, args ...any) { l.log.Trace().Msgf(format, args...) }

func (l logger) Errorf(format string, args ...any) {
	l.log.Error().Str("dir", l.dir).Msgf(format, args...)
}

func (l logger) Fatalf(format string, args ...any) {
	l.log.Error().Str("dir", l.dir).Msgf("the store cannot go on and the server ends (clients will wait for a restart; "+
		"free some space there if the disk is full): "+format, args...)
	l.fatal()
}

// backgroundError ends the process when it is the disk that fails: Pebble would try again at once and for ever, while
// all writers wait.
func (l logger) backgroundError(err error) {
	for _, broken := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, broken) {
			l.Fatalf("%v", err)
			return
		}
	}
	l.Errorf("work in the background failed, will be tried again: %v", err)
}

func (l logger) lowDiskSpace(info pebble.LowDiskSpaceInfo) {
	l.log.Warn().Str("dir", l.dir).Msgf("%d %% of the disk are left: when it is full, the server ends", info.PercentThreshold)
}

func mapError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}

// enter notes a running call; leave ends it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return store.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.mu.RUnlock() }

// Name is "pebble:" and the folder.
func (s *Store) Name() string { return "pebble:" + s.dir }

// Limits are chosen far above what a job should put into one row.
func (s *Store) Limits() store.Limits {
	return store.Limits{MaxKeyBytes: maxKeyBytes, MaxValueBytes: maxValueBytes, MaxMetaKey: maxKeyBytes, MaxMetaValue: maxValueBytes}
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.RowKey) ([][]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return get(s.db, keys)
}

func get(r pebble.Reader, keys []store.RowKey) ([][]byte, error) {
	values := make([][]byte, len(keys))
	var buf []byte
	for i, k := range keys {
		buf = appendRowKey(buf[:0], k)
		value, err := getOne(r, buf)
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

// getOne returns a copy of a value; nil where there is none.
func getOne(r pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", mapError(err))
	}
	copied := append(make([]byte, 0, len(value)), value...)
	if err := closer.Close(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return copied, nil
}

// Scan implements store.Store.
func (s *Store) Scan(ctx context.Context, r store.Range) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.leave()
	return scan(s.db, r)
}

func scan(reader pebble.Reader, r store.Range) (page store.Page, err error) {
	if r.MaxRows <= 0 {
		r.MaxRows = 1024
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = 4 * mib
	}
	prefix := append(appendRowPrefix(nil, r.Space, r.Group, r.State), r.Prefix...)
	lower := prefix
	if r.After != nil {
		after := append(appendRowPrefix(nil, r.Space, r.Group, r.State), r.After...)
		after = append(after, 0) // the smallest key above
		if bytes.Compare(after, lower) > 0 {
			lower = after
		}
	}
	it, err := reader.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return store.Page{}, fmt.Errorf("scan: %w", mapError(err))
	}
	defer func() {
		if closeErr := it.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("scan: %w", mapError(closeErr))
		}
	}()
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if len(page.Rows) >= r.MaxRows || size >= r.MaxBytes {
			return page, nil
		}
		row, err := rowAt(it, r)
		if err != nil {
			return store.Page{}, err
		}
		page.Rows = append(page.Rows, row)
		size += len(row.Key) + len(row.Value)
	}
	page.Done = it.Error() == nil
	return page, nil
}

func rowAt(it *pebble.Iterator, r store.Range) (store.Row, error) {
	key := append([]byte{}, it.Key()[rowPrefixBytes:]...)
	row := store.Row{RowKey: store.RowKey{Space: r.Space, Group: r.Group, State: r.State, Key: key}}
	if r.KeysOnly {
		return row, nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return store.Row{}, fmt.Errorf("scan: %w", mapError(err))
	}
	row.Value = append(make([]byte, 0, len(value)), value...)
	return row, nil
}

// Meta implements store.Store.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return getOne(s.db, metaName(key))
}

// ScanMeta implements store.Store.
func (s *Store) ScanMeta(ctx context.Context, prefix string) ([]store.Meta, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.scanMeta(prefix)
}

func (s *Store) scanMeta(prefix string) (metas []store.Meta, err error) {
	start := metaName(prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: prefixEnd(start)})
	if err != nil {
		return nil, fmt.Errorf("scan meta records: %w", mapError(err))
	}
	defer func() {
		if closeErr := it.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("scan meta records: %w", mapError(closeErr))
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("scan meta records: %w", mapError(err))
		}
		metas = append(metas, store.Meta{Key: string(it.Key()[1:]), Value: append([]byte{}, value...)})
	}
	return metas, nil
}

// DropSpace implements store.Store. A range tombstone does it at once; the room comes back with
// compactions.
func (s *Store) DropSpace(ctx context.Context, space uint64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	start := spacePrefix(space)
	if err := s.db.DeleteRange(start, prefixEnd(start), pebble.Sync); err != nil {
		return fmt.Errorf("drop row space %d: %w", space, mapError(err))
	}
	return nil
}

// SpaceBytes implements store.Store.
func (s *Store) SpaceBytes(ctx context.Context, space uint64) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	start := spacePrefix(space)
	n, err := s.db.EstimateDiskUsage(start, prefixEnd(start))
	if err != nil {
		return 0, fmt.Errorf("size of row space %d: %w", space, mapError(err))
	}
	return n, nil
}

// Bytes implements store.Store.
func (s *Store) Bytes(ctx context.Context) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	return s.db.Metrics().DiskSpaceUsage(), nil
}

// Close implements store.Store: it waits for running calls.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close the store in %s: %w", s.dir, err)
	}
	return nil
}
