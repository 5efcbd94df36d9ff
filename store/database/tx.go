package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"time"
)

// Querier runs statements: a connection pool, or the connection of a
// transaction. Placeholders are $1, $2, … in both dialects.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a transaction as the operation within it sees it.
type Tx struct {
	Ctx context.Context
	Querier
	// ForUpdate is appended to a SELECT whose rows must not change until the commit. It
	// is empty for SQLite, which has one writer at a time anyway.
	ForUpdate string
	// ForShare is like ForUpdate, but others may also read such rows with ForShare.
	ForShare string
}

// Scan reads the columns of one row into pointers.
type Scan func(dest ...any) error

// Exec returns how many rows the statement changed.
func (t Tx) Exec(query string, args ...any) (int64, error) {
	result, err := t.ExecContext(t.Ctx, query, bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// One reads the only row of a query. If there is no row, it returns sql.ErrNoRows.
func One[T any](ctx context.Context, q Querier, read func(Scan) (T, error), query string, args ...any) (T, error) {
	var none T
	all, err := List(ctx, q, read, query, args...)
	if err != nil {
		return none, err
	}
	if len(all) == 0 {
		return none, sql.ErrNoRows
	}
	return all[0], nil
}

// List reads all rows of a query.
func List[T any](ctx context.Context, q Querier, read func(Scan) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := q.QueryContext(ctx, query, bind(args)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := read(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Scalar reads a row of one column.
func Scalar[T any](row Scan) (T, error) {
	var v T
	err := row(&v)
	return v, err
}

// InsertOrFind inserts a row, or finds the row that has its key. insert ends
// with ON CONFLICT DO NOTHING.
func InsertOrFind[T any](t Tx, insert string, args []any, find func() (T, error)) (v T, created bool, err error) {
	n, err := t.Exec(insert, args...)
	if err != nil {
		return v, false, err
	}
	v, err = find()
	return v, n == 1, err
}

// bind converts arguments for both databases: it dereferences pointers and makes text of
// any type valid.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) { // the commonest, without reflection
		case *int:
			out[i] = int64(*v)
		case *[]byte:
			out[i] = *v
		case *string:
			out[i] = ValidText(*v)
		case string:
			out[i] = ValidText(v)
		case int:
			out[i] = int64(v)
		default:
			out[i] = reflected(a)
		}
	}
	return out
}

// reflected binds an argument of any type.
func reflected(a any) any {
	v := reflect.ValueOf(a)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.IsValid() {
		a = v.Interface()
	}
	if w, ok := a.(driver.Valuer); ok {
		a, _ = w.Value() // only our own types, whose Value never fails
	} else if v.Kind() == reflect.String {
		a = ValidText(v.String())
	}
	return a
}

// ValidText returns s as valid UTF-8 without NUL.
func ValidText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Nanos returns a time as it is stored: nanoseconds since 1970, 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
