package database

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
)

// Table is the list of a table's columns, by which rows are written, read and compared.
type Table[Row any] struct {
	name    string // with the alias that queries use, for example "calls c"
	columns []Column[Row]
}

// NewTable returns a table with this name, which contains the alias that queries use, for
// example "calls c".
func NewTable[Row any](name string, columns ...Column[Row]) Table[Row] {
	return Table[Row]{name, columns}
}

// Column is a column and the field of a row that holds it.
type Column[Row any] struct {
	name  string
	field func(*Row) any // a pointer
	loose bool
}

// Col returns the column with that name; field returns a pointer to the row's field.
func Col[Row any](name string, field func(*Row) any) Column[Row] {
	return Column[Row]{name, field, false}
}

// Loose returns a column in which rows may differ and still count as the same.
func Loose[Row any](name string, field func(*Row) any) Column[Row] {
	return Column[Row]{name, field, true}
}

// Insert returns the statement that adds a row unless there is one with its key.
func (t Table[Row]) Insert() string {
	names, places := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i], places[i] = c.name, fmt.Sprintf("$%d", i+1)
	}
	name, _, _ := strings.Cut(t.name, " ")
	return "INSERT INTO " + name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ") ON CONFLICT DO NOTHING"
}

// From returns the query that selects rows of the table; before lists the tables to which
// it is joined.
func (t Table[Row]) From(before ...string) string {
	_, letter, _ := strings.Cut(t.name, " ")
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = letter + "." + c.name
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM " + strings.Join(append(before, t.name), " CROSS JOIN ")
}

// Fields returns pointers to a row's fields in the order of the columns. bind turns them
// into values.
func (t Table[Row]) Fields(r *Row) []any {
	out := make([]any, len(t.columns))
	for i, c := range t.columns {
		out[i] = c.field(r)
	}
	return out
}

// Read reads a row of a query by From.
func (t Table[Row]) Read(row Scan) (r Row, err error) {
	err = row(t.Fields(&r)...)
	return r, err
}

// Same reports whether two rows are equal, apart from loose columns.
func (t Table[Row]) Same(a, b *Row) bool {
	left, right := bind(t.Fields(a)), bind(t.Fields(b))
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

// Moment is stored as nanoseconds since 1970, 0 for the zero time. It and the types that
// follow have columns of one kind in both databases.
type Moment time.Time

// Flag is 0 or 1.
type Flag bool

// Unsigned is stored as a signed number with the same bits.
type Unsigned uint64

// Optional is stored as empty if it is nil.
type Optional []byte

// Scan implements sql.Scanner.
func (m *Moment) Scan(src any) error {
	n, err := integer(src)
	if *m = (Moment{}); n != 0 {
		*m = Moment(time.Unix(0, n).UTC())
	}
	return err
}

// Value implements driver.Valuer.
func (m Moment) Value() (driver.Value, error) { return Nanos(time.Time(m)), nil }

// Scan implements sql.Scanner.
func (f *Flag) Scan(src any) error {
	n, err := integer(src)
	*f = n != 0
	return err
}

// Value implements driver.Valuer.
func (f Flag) Value() (driver.Value, error) {
	if f {
		return int64(1), nil
	}
	return int64(0), nil
}

// Scan implements sql.Scanner.
func (u *Unsigned) Scan(src any) error {
	n, err := integer(src)
	*u = Unsigned(n)
	return err
}

// Value implements driver.Valuer.
func (u Unsigned) Value() (driver.Value, error) { return int64(u), nil }

// Scan implements sql.Scanner.
func (o *Optional) Scan(src any) error {
	b, ok := src.([]byte)
	if *o = nil; len(b) > 0 {
		*o = bytes.Clone(b)
	}
	if !ok && src != nil {
		return fmt.Errorf("%T is not a column of bytes", src)
	}
	return nil
}

// Value implements driver.Valuer.
func (o Optional) Value() (driver.Value, error) {
	if o == nil {
		return []byte{}, nil
	}
	return []byte(o), nil
}

func integer(src any) (int64, error) {
	n, ok := src.(int64)
	if !ok {
		return 0, fmt.Errorf("%T is not an integer column", src)
	}
	return n, nil
}
