package store

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// table is the one list of a table's columns, from which rows are written, read and
// compared.
type table[Row any] struct {
	name    string // with the letter that queries call it by, "calls c"
	columns []column[Row]
}

// column is a column and where a row has it.
type column[Row any] struct {
	name  string
	field func(*Row) any // a pointer
	// loose columns may differ between rows that are the same.
	loose bool
}

// addressed are the columns that name an attempt.
func addressed[Row any](address func(*Row) *trace.Address) []column[Row] {
	return []column[Row]{
		{"run", func(r *Row) any { return &address(r).Run }, false},
		{"kind", func(r *Row) any { return &address(r).Kind }, false},
		{"step", func(r *Row) any { return &address(r).Step }, false},
		{"task", func(r *Row) any { return &address(r).Task }, false},
		{"sample", func(r *Row) any { return &address(r).Sample }, false},
		{"attempt", func(r *Row) any { return &address(r).Attempt }, false},
	}
}

func (t table[Row]) insert() string {
	names, places := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i], places[i] = c.name, fmt.Sprintf("$%d", i+1)
	}
	name, _, _ := strings.Cut(t.name, " ")
	return "INSERT INTO " + name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ") ON CONFLICT DO NOTHING"
}

// from selects rows of the table; before are what the table is joined to.
func (t table[Row]) from(before ...string) string {
	_, letter, _ := strings.Cut(t.name, " ")
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = letter + "." + c.name
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM " + strings.Join(append(before, t.name), " CROSS JOIN ")
}

// fields are pointers to what a row holds, column by column: bind makes values of
// them.
func (t table[Row]) fields(r *Row) []any {
	out := make([]any, len(t.columns))
	for i, c := range t.columns {
		out[i] = c.field(r)
	}
	return out
}

func (t table[Row]) read(row scan) (r Row, err error) {
	err = row(t.fields(&r)...)
	return r, err
}

// same reports whether two rows hold the same, but for what is loose.
func (t table[Row]) same(a, b *Row) bool {
	left, right := bind(t.fields(a)), bind(t.fields(b))
	for i, c := range t.columns {
		if x, ok := left[i].([]byte); ok {
			if !c.loose && !bytes.Equal(x, right[i].([]byte)) {
				return false
			}
		} else if !c.loose && left[i] != right[i] {
			return false
		}
	}
	return true
}

// These are how Go's values stand in columns of both databases.
type (
	moment   time.Time // nanoseconds since 1970, 0 for none
	flag     bool      // 0 or 1
	unsigned uint64    // its bits, signed
	optional []byte    // empty for none
)

func (m *moment) Scan(src any) error {
	n, err := integer(src)
	*m = moment(fromNanos(n))
	return err
}

func (m moment) Value() (driver.Value, error) { return nanos(time.Time(m)), nil }

func (f *flag) Scan(src any) error {
	n, err := integer(src)
	*f = n != 0
	return err
}

func (f flag) Value() (driver.Value, error) {
	if f {
		return int64(1), nil
	}
	return int64(0), nil
}

func (u *unsigned) Scan(src any) error {
	n, err := integer(src)
	*u = unsigned(n)
	return err
}

func (u unsigned) Value() (driver.Value, error) { return int64(u), nil }

func (o *optional) Scan(src any) error {
	b, ok := src.([]byte)
	if *o = nil; len(b) > 0 {
		*o = bytes.Clone(b)
	}
	if !ok && src != nil {
		return fmt.Errorf("%T is no column of bytes", src)
	}
	return nil
}

func (o optional) Value() (driver.Value, error) {
	if o == nil {
		return []byte{}, nil
	}
	return []byte(o), nil
}

func integer(src any) (int64, error) {
	n, ok := src.(int64)
	if !ok {
		return 0, fmt.Errorf("%T is no integer column", src)
	}
	return n, nil
}
