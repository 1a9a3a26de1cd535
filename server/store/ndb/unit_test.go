package ndb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"pgregory.net/rapid"

	"github.com/flinkndb/flinkndb/server/store"
)

func TestParseURL(t *testing.T) {
	t.Setenv(passwordVariable, "from the environment")
	cfg, err := parseURL("mysql://app@db1,db2:3307,[::1]:3308,%2Frun%2Fmysql.sock/flink_1?engine=ndb&durability=disk&pool=5&retry-timeout=10s")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"db1:3306", "db2:3307", "[::1]:3308", "/run/mysql.sock"}
	if !slices.Equal(cfg.addresses, want) {
		t.Errorf("addresses %q, want %q", cfg.addresses, want)
	}
	if cfg.user != "app" || cfg.database != "flink_1" || cfg.engine != EngineNDB || cfg.durability != DurabilityDisk ||
		cfg.pool != 5 || cfg.retryTimeout != 10*time.Second || cfg.password != "from the environment" {
		t.Errorf("configuration %+v", cfg)
	}
	if strings.Contains(cfg.name(), cfg.password) {
		t.Errorf("the name shows the password: %s", cfg.name())
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err = parseURL("mysql://app@db/x?password-file=" + file); err != nil || cfg.password != "from a file" {
		t.Errorf("password %q (%v)", cfg.password, err)
	}
}

func TestBadURLs(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://a@b/c":                                   "must start with mysql://",
		"mysql://a@b":                                        "no database",
		"mysql://b/c":                                        "no user",
		"mysql://a:secret@b/c":                               passwordVariable,
		"mysql://a@b/c;drop":                                 "allowed are letters",
		"mysql://a@b:99999/c":                                "allowed are 1 to 65535",
		"mysql://a@b,,c/d":                                   "empty host name",
		"mysql://a@b/c?engine=myisam":                        "allowed are ndb, innodb",
		"mysql://a@b/c?durability=hope":                      "allowed are replicated, disk",
		"mysql://a@b/c?engine=innodb&durability=disk":        "is for engine=ndb",
		"mysql://a@b,b2/c?engine=innodb":                     "only one is allowed",
		"mysql://a@b/c?pool=0":                               "allowed are 1 to 1000",
		"mysql://a@b/c?retry-timeout=forever":                "allowed are 0s to 1h",
		"mysql://a@b/c?pool=1&pool=2":                        "given 2 times",
		"mysql://a@b/c?colour=red":                           "colour: unknown",
		"mysql://a@b/c?tls=maybe":                            "allowed are off, on, skip-verify",
		"mysql://a@b/c?tls-ca=x":                             "set tls=on",
		"mysql://a@b/c?tls=on&tls-cert=x":                    "give both or none",
		"mysql://a@b/c?password-file=/does/not/exist/at/all": "password-file",
	} {
		_, err := parseURL(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; must contain %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password", url)
		}
	}
}

// TestLiteralsEnd: a literal ends at its closing quote and nowhere before.
func TestLiteralsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.SampledFrom([]byte{'\'', '\\', 0, '"', 'a', 0xff, '\n'})).Draw(t, "bytes")
		var s statement
		s.bytes(b)
		got, rest := unquote(s.String())
		if !bytes.Equal(got, b) || rest != "" {
			t.Fatalf("%q is written %q, which reads %q and leaves %q", b, s.String(), got, rest)
		}
	})
}

// unquote reads a literal as MySQL does.
func unquote(s string) (b []byte, rest string) {
	b = []byte{}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			return b, s[i+1:]
		case s[i] == '\\' && s[i+1] == '0':
			b = append(b, 0)
			i++
		case s[i] == '\\':
			b = append(b, s[i+1])
			i++
		default:
			b = append(b, s[i])
		}
	}
	return b, "no end"
}

// TestStoredKeysKeepTheOrder of keys, but for long keys with the same beginning.
func TestStoredKeysKeepTheOrder(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.SampledFrom([]int{0, 1, 5, inlineKey - 1, inlineKey, inlineKey + 1, inlineKey + 50}).Draw(t, "size")
		k := bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 'a', 0xff}).Draw(t, "fill")}, n)
		if n > 0 {
			k[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		return k
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		if len(a) > inlineKey && len(b) > inlineKey && bytes.Equal(a[:inlineKey], b[:inlineKey]) {
			return
		}
		if got, want := strings.Compare(storedKey(a), storedKey(b)), bytes.Compare(a, b); got != want {
			t.Fatalf("keys of %d and %d bytes compare %d, stored %d", len(a), len(b), want, got)
		}
	})
}

func TestSuccessor(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "a\xff": "b", "\xff\xff": "", "a\xff\xfeb": "a\xff\xfec", "\x00": "\x01"} {
		if got := successor([]byte(prefix)); got != want {
			t.Errorf("successor of %q is %q, want %q", prefix, got, want)
		}
	}
}

func TestAppendixRoundTrip(t *testing.T) {
	a := appendix{tag: 1<<63 + 5, total: inlineValue + chunkBytes + 1, keyBytes: 1000}
	back, err := decodeAppendix(a.encode())
	if err != nil || back != a {
		t.Errorf("%+v became %+v (%v)", a, back, err)
	}
	if n := a.chunks(); n != 2 {
		t.Errorf("%d chunks, want 2", n)
	}
	for _, bad := range [][]byte{nil, make([]byte, 19), appendix{total: 5, keyBytes: 6}.encode(), appendix{total: 1 << 60}.encode()} {
		if _, err := decodeAppendix(bad); err == nil {
			t.Errorf("%x was accepted", bad)
		}
	}
}

func TestErrorsAreSorted(t *testing.T) {
	my := func(number uint16, text string) error {
		return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number, Message: text})
	}
	for _, c := range []struct {
		err  error
		want class
		full bool
	}{
		{my(1205, "Lock wait timeout exceeded; try restarting transaction"), conflict, false},
		{my(1213, "Deadlock found"), conflict, false},
		{my(1297, "Got temporary error 410 'REDO log files overloaded (increase FragmentLogFileSize)' from NDBCLUSTER"), overload, false},
		{my(1297, "Got temporary error 286 'Node failure caused abort of transaction' from NDBCLUSTER"), conflict, false},
		{my(1297, "Got temporary error 4010 'Node failure caused abort of transaction' from NDBCLUSTER"), conflict, false},
		{my(1296, "Got error 157 'Unknown error code' from NDBCLUSTER"), hostDown, false},
		{my(1296, "Got error 4009 'Cluster Failure' from NDBCLUSTER"), hostDown, false},
		{my(1296, "Got error 739 'Unsupported primary key length' from NDBCLUSTER"), permanent, false},
		{my(1114, "The table 'state_row' is full"), permanent, true},
		{my(1297, "Got temporary error 827 'Out of memory in Ndb Kernel, table data (increase DataMemory)' from NDBCLUSTER"), permanent, true},
		{my(1045, "Access denied"), permanent, false},
		{my(1146, "Table 'flinkndb.meta' doesn't exist"), hostDown, false},
		{my(1053, "Server shutdown in progress"), hostDown, false},
		{mysql.ErrInvalidConn, hostDown, false},
		{fmt.Errorf("wrapped: %w", mysql.ErrPktSync), hostDown, false},
		{errTorn, conflict, false},
		{errors.New("something else"), permanent, false},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		if got := isFull(c.err); got != c.full {
			t.Errorf("%v: full is %v", c.err, got)
		}
		err := explain("put", c.err)
		if c.full != errors.Is(err, store.ErrFull) || (c.want != permanent) != errors.Is(err, store.ErrUnavailable) {
			t.Errorf("explained: %v", err)
		}
	}
}

// TestUnknownOutcomeIsNotCalledFull loses the answer of a COMMIT that failed for want of room, and then the database: a
// caller that is told of a full store takes it for granted that nothing has happened.
func TestUnknownOutcomeIsNotCalledFull(t *testing.T) {
	full := &mysql.MySQLError{Number: erRecordFileFull, Message: "The table 'state_row' is full"}
	err := explain("update", fmt.Errorf("%w: %w (looking for it: %v)", errUnknownOutcome, full, mysql.ErrInvalidConn))
	if errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("explained: %v", err)
	}
}

// TestRemovalsCountAsOperations removes more rows, or longer ones, than the cluster can hold in one transaction.
func TestRemovalsCountAsOperations(t *testing.T) {
	const limit = 10
	keys := make([]store.RowKey, limit+1)
	for i := range keys {
		keys[i] = store.RowKey{Space: 7, Key: []byte{byte(i)}}
	}
	for name, c := range map[string]struct {
		remove func(t *tx) error
		fits   bool
	}{
		"rows that fit": {func(t *tx) error { return t.Delete(keys[:limit]) }, true},
		"too many rows": {func(t *tx) error { return t.Delete(keys) }, false},
		"too many in several calls": {func(t *tx) error {
			return errors.Join(t.Delete(keys[:limit]), t.Delete(keys[limit:]))
		}, false},
		"a row of too many chunks": {func(t *tx) error {
			t.rows.long[rowKey(keys[0])] = appendix{total: inlineValue + limit*chunkBytes}
			return t.Delete(keys[:1])
		}, false},
		"a short row in the place of too many chunks": {func(t *tx) error {
			t.rows.long[rowKey(keys[0])] = appendix{total: inlineValue + limit*chunkBytes}
			return t.Put([]store.Row{{RowKey: keys[0], Value: []byte("v")}})
		}, false},
	} {
		removing := newTx(&Store{maxOperations: limit}, sessionOf(t, nil), nil)
		if err := c.remove(removing); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnreachableServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, "mysql://a@127.0.0.1:1/b", testLog(t), nil)
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	_, err = Open(t.Context(), "mysql://a@127.0.0.1:1/b?retry-timeout=0s", testLog(t), nil)
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestFailedHostsAreAvoided(t *testing.T) {
	hs := &hosts{all: []*host{{address: "a"}, {address: "b"}}}
	seen := map[string]int{}
	for range 10 {
		seen[hs.pick().address]++
	}
	if seen["a"] != 5 || seen["b"] != 5 {
		t.Errorf("work is spread %v", seen)
	}
	a, b := hs.all[0], hs.all[1]
	a.markDown()
	for range 10 {
		if h := hs.pick(); h != b {
			t.Errorf("picked %s, which is down", h.address)
		}
	}
	b.markDown()
	if h := hs.pick(); h != a {
		t.Errorf("all are down: picked %s, which failed last", h.address)
	}
	a.markUp()
	b.downUntil.Store(1) // its time is over: one caller tries it
	seen = map[string]int{}
	for range 10 {
		seen[hs.pick().address]++
	}
	if seen["b"] != 1 {
		t.Errorf("a server that was down is tried %d times at once", seen["b"])
	}
	for range 20 {
		a.markDown()
	}
	if d := a.downTime(); d != downMost {
		t.Errorf("a server that keeps failing is left alone for %v", d)
	}
}

func TestCutFitsStatements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 50).Draw(t, "sizes")
		start := 0
		for start < len(sizes) {
			end := cut(start, len(sizes), 7, 100, func(i int) int { return sizes[i] })
			sum := 0
			for _, n := range sizes[start:end] {
				sum += n
			}
			if end <= start || end-start > 7 || sum > 100 {
				t.Fatalf("items %d to %d: %d bytes", start, end, sum)
			}
			start = end
		}
	})
}

func TestSchemaNamesItsEngine(t *testing.T) {
	if s := Schema(EngineNDB); strings.Count(s, "ENGINE=NDBCLUSTER") != 6 || !strings.Contains(s, "PARTITION BY KEY (space, key_group)") || strings.Contains(s, "PARTITIONED") {
		t.Error(s)
	}
	if s := Schema(EngineInnoDB); strings.Count(s, "ENGINE=InnoDB") != 6 || strings.Contains(s, "PARTITION") {
		t.Error(s)
	}
}
