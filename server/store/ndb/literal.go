package ndb

import (
	"strconv"
	"strings"
)

// statement builds the text of one SQL statement. Bytes go in as quoted literals: the connection's
// character set is binary and its sql_mode keeps backslash escapes (sessionSetup), so that every
// byte string survives and none can end its literal.
type statement struct{ strings.Builder }

func (s *statement) number(n uint64) {
	var digits [20]byte
	s.Write(strconv.AppendUint(digits[:0], n, 10))
}

// bytes writes a quoted literal.
func (s *statement) bytes(b []byte) {
	s.WriteByte('\'')
	start := 0
	for i, c := range b {
		if c != '\'' && c != '\\' && c != 0 {
			continue
		}
		s.Write(b[start:i])
		s.WriteByte('\\')
		if c == 0 {
			s.WriteByte('0')
		} else {
			s.WriteByte(c)
		}
		start = i + 1
	}
	s.Write(b[start:])
	s.WriteByte('\'')
}

// list writes what item writes for 0 to n-1, with commas between.
func (s *statement) list(n int, item func(i int)) {
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		item(i)
	}
}
