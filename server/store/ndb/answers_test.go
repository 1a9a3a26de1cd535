package ndb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

// answers is a database that answers every query with rows made of the bytes of a fuzzer.
type answers struct{ raw []byte }

func (a *answers) Connect(context.Context) (driver.Conn, error) { return a, nil }
func (a *answers) Driver() driver.Driver                        { return nil }
func (a *answers) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not used") }
func (a *answers) Begin() (driver.Tx, error)                    { return nil, errors.New("not used") }
func (a *answers) Close() error                                 { return nil }

// QueryContext implements driver.QueryerContext: as many columns as the statement asks for.
func (a *answers) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	list, _, _ := strings.Cut(strings.TrimPrefix(statement, "SELECT "), " FROM ")
	return &answer{a, strings.Split(list, ",")}, nil
}

// ExecContext implements driver.ExecerContext: statements that change something do nothing.
func (a *answers) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(0), nil
}

type answer struct {
	*answers
	names []string
}

func (a *answer) Columns() []string { return a.names }

// Next makes a row; the bytes say of which types its columns are, and what they hold.
func (a *answer) Next(columns []driver.Value) error {
	if len(a.raw) == 0 || a.raw[0] == endOfAnswer {
		a.raw = a.raw[min(1, len(a.raw)):]
		return io.EOF
	}
	for i := range columns {
		columns[i] = a.column()
	}
	return nil
}

const (
	endOfAnswer = iota
	columnNull
	columnInt
	columnUint
	columnFloat
	columnText
	columnBytes
	columnKinds
)

func (a *answers) column() driver.Value {
	if len(a.raw) == 0 {
		return nil
	}
	kind := a.raw[0] % columnKinds
	a.raw = a.raw[1:]
	switch kind {
	case columnInt:
		n, used := binary.Varint(a.raw)
		a.raw = a.raw[max(0, used):]
		return n
	case columnUint:
		n, used := binary.Uvarint(a.raw)
		a.raw = a.raw[max(0, used):]
		return n
	case columnFloat:
		return 1.5
	case columnText:
		return string(a.text())
	case columnBytes:
		return a.text()
	default:
		return nil
	}
}

func (a *answers) text() []byte {
	n, used := binary.Uvarint(a.raw)
	a.raw = a.raw[max(0, used):]
	n = min(n, uint64(len(a.raw)))
	text := a.raw[:n]
	a.raw = a.raw[n:]
	return text
}

// rowAnswer is the bytes of a row of state_row.
type rowAnswer []byte

func (r rowAnswer) uint(n uint64) rowAnswer {
	return binary.AppendUvarint(append(r, columnUint), n)
}

func (r rowAnswer) bytes(b []byte) rowAnswer {
	if b == nil {
		return append(r, columnNull)
	}
	return append(binary.AppendUvarint(append(r, columnBytes), uint64(len(b))), b...)
}

var (
	answerKey  = store.RowKey{Space: 7, Group: 3, State: 1, Key: []byte("some key")}
	answerLong = store.RowKey{Space: 7, Group: 3, State: 1, Key: []byte(strings.Repeat("k", inlineKey+20))}
)

// TestDamagedAnswers reads rows that the database never should return: the error names the row.
func TestDamagedAnswers(t *testing.T) {
	key := func() rowAnswer { return rowAnswer{}.uint(7).uint(3).uint(1).bytes([]byte("some key")) }
	long := func() rowAnswer { return rowAnswer{}.uint(7).uint(3).uint(1).bytes([]byte(storedKey(answerLong.Key))) }
	const name, longName = "row of space 7, group 3, state 1, key 736f6d65206b6579", "row of space 7, group 3, state 1, key 6b6b6b"
	for what, c := range map[string]struct {
		raw  rowAnswer
		want []string
	}{
		"appendix cut off":      {key().bytes([]byte("short")).bytes([]byte("v")), []string{name, "column more holds 5 bytes"}},
		"appendix of nonsense":  {key().bytes(appendix{total: 1 << 60}.encode()).bytes([]byte("v")), []string{name, "column more"}},
		"a key in the payload":  {key().bytes(appendix{total: 20, keyBytes: 5}.encode()).bytes(make([]byte, 20)), []string{name, "column k holds 8 bytes"}},
		"no key in the payload": {long().bytes(appendix{total: 20}.encode()).bytes(make([]byte, 20)), []string{longName, "column k"}},
		"another key":           {long().bytes(appendix{total: 20, keyBytes: 5}.encode()).bytes(make([]byte, 20)), []string{longName, "another key"}},
		"value cut off":         {key().bytes(appendix{total: 1 << 20}.encode()).bytes([]byte("v")), []string{name, "holds 1 bytes of a payload of 1048576"}},
		"another row":           {rowAnswer{}.uint(8).uint(3).uint(1).bytes([]byte("x")).bytes(nil).bytes([]byte("v")), []string{"row of space 8", "not asked for"}},
		"group out of range":    {rowAnswer{}.uint(7).uint(65536 + 3).uint(1).bytes([]byte("some key")).bytes(nil).bytes([]byte("v")), []string{"state_row", "65539"}},
		"a number as the value": {key().bytes(nil).uint(5), []string{name, "uint64 instead of bytes"}},
		"negative space":        {append(rowAnswer{columnInt, 1}, rowAnswer{}.uint(3).uint(1).bytes(nil).bytes(nil).bytes(nil)...), []string{"state_row", "column holds -1"}},
	} {
		_, err := askForRows(t, c.raw)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", what, err, want)
			}
		}
	}
	values, err := askForRows(t, key().bytes(nil).bytes([]byte("v")))
	if err != nil || string(values[0]) != "v" || values[1] != nil {
		t.Errorf("a good answer: %q, %v", values, err)
	}
}

// sessionOf is a connection to a database that answers so.
func sessionOf(t *testing.T, raw []byte) *session {
	t.Helper()
	db := sql.OpenDB(&answers{raw})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // a connection that is no real one
		_ = db.Close()
	})
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &session{ctx: t.Context(), conn: conn, maxBytes: 1 << 20, metrics: m}
}

func askForRows(t *testing.T, raw []byte) ([][]byte, error) {
	t.Helper()
	l, err := newLookup([]store.RowKey{answerKey, answerLong})
	if err != nil {
		t.Fatal(err)
	}
	return l.values, sessionOf(t, raw).get(l)
}

// FuzzAnswers lets the database answer anything: reads and scans end, with rows or with an error.
func FuzzAnswers(f *testing.F) {
	row := rowAnswer{}.uint(7).uint(3).uint(1).bytes(answerKey.Key).bytes(nil).bytes([]byte("v"))
	f.Add(0, []byte(row))
	f.Add(0, []byte(rowAnswer{}.uint(7).uint(3).uint(1).bytes(answerKey.Key).bytes(appendix{5, 20, 5}.encode()).bytes(make([]byte, 20))))
	f.Add(1, []byte(rowAnswer{}.bytes([]byte("a")).bytes(nil).bytes([]byte("v")).bytes([]byte("b")).bytes(appendix{5, inlineValue + 3, 0}.encode()).bytes(make([]byte, inlineValue))))
	hashed := rowAnswer{}.bytes([]byte(storedKey(answerLong.Key))).bytes(appendix{5, inlineKey + 25, inlineKey + 20}.encode()).bytes([]byte(strings.Repeat("k", inlineKey+25)))
	f.Add(1, append(append([]byte(hashed), endOfAnswer), hashed...))
	f.Add(2, []byte(hashed))
	f.Add(3, []byte(rowAnswer{}.bytes([]byte("name")).bytes(nil).bytes([]byte("v"))))
	f.Fuzz(func(t *testing.T, what int, raw []byte) {
		c := sessionOf(t, raw)
		var page store.Page
		var err error
		switch what & 3 {
		case 0:
			_, err = askForRows(t, raw)
		case 1, 2:
			page, err = c.scan(store.Range{Space: 7, Group: 3, State: 1, KeysOnly: what&3 == 2, MaxRows: 5})
		case 3:
			_, err = c.scanMeta("n")
		}
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		for i := 1; i < len(page.Rows); i++ {
			if page.Rows[i-1].Compare(page.Rows[i].RowKey) >= 0 {
				t.Fatalf("rows out of order: %x, %x", page.Rows[i-1].Key, page.Rows[i].Key)
			}
		}
	})
}
