package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// querier runs statements: a connection pool, or the connection of a
// transaction. Placeholders are $1, $2, … in both dialects.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// tx is a transaction as its steps see it.
type tx struct {
	ctx context.Context
	querier
	// forUpdate ends a SELECT whose rows must stand still until the commit. It
	// is empty for SQLite, which has one writer at a time anyway.
	forUpdate string
}

// scan reads the columns of one row into pointers.
type scan func(dest ...any) error

// exec returns how many rows the statement changed.
func (t tx) exec(query string, args ...any) (int64, error) {
	result, err := t.ExecContext(t.ctx, query, bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// one reads the only row of a query; without a row it is sql.ErrNoRows.
func one[T any](ctx context.Context, q querier, read func(scan) (T, error), query string, args ...any) (T, error) {
	var none T
	all, err := list(ctx, q, read, query, args...)
	if err != nil {
		return none, err
	}
	if len(all) == 0 {
		return none, sql.ErrNoRows
	}
	return all[0], nil
}

// list reads all rows of a query.
func list[T any](ctx context.Context, q querier, read func(scan) (T, error), query string, args ...any) (out []T, err error) {
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

// scalar reads a row of one column.
func scalar[T any](row scan) (T, error) {
	var v T
	err := row(&v)
	return v, err
}

// keep inserts a row, or finds the one that stands under its key. insert ends
// with ON CONFLICT DO NOTHING.
func keep[T any](t tx, insert string, args []any, standing func() (T, error)) (v T, created bool, err error) {
	n, err := t.exec(insert, args...)
	if err != nil {
		return v, false, err
	}
	v, err = standing()
	return v, n == 1, err
}

// bind makes arguments fit for both databases: pointers become what they point to,
// text of any type valid.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		v := reflect.ValueOf(a)
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
			a = v.Interface()
		}
		if w, ok := a.(driver.Valuer); ok {
			a, _ = w.Value() // ours alone, which never fail
		} else if v.Kind() == reflect.String {
			a = clean(v.String())
		}
		out[i] = a
	}
	return out
}

// clean returns s as valid UTF-8 without NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// orNow is t, or the present where t is not given.
func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now().UTC()
	}
	return t
}

// encode is v as JSON text; decode reads it back.
func encode(what string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(b), nil
}

func decode(what, text string, v any) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

// raw is JSON text as a message, nil when there is none.
func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
