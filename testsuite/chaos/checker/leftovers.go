package checker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// TablesWith returns the tables of the store that have one of some texts in a row.
func (d *Database) TablesWith(ctx context.Context, texts []string) ([]string, error) {
	names, err := d.tables(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		has, err := d.has(ctx, name, texts)
		if err != nil {
			return nil, fmt.Errorf("search table %s: %w", name, err)
		}
		if has {
			out = append(out, "table "+name)
		}
	}
	return out, nil
}

func (d *Database) tables(ctx context.Context) ([]string, error) {
	query := `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name <> $1 ORDER BY table_name`
	if d.sqlite {
		query = `SELECT name FROM sqlite_master WHERE type = 'table' AND name <> $1 ORDER BY name`
	}
	var names []string
	err := d.list(ctx, query, "", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// has reports whether a row of a table has one of some texts.
func (d *Database) has(ctx context.Context, table string, texts []string) (bool, error) {
	rows, err := d.db.QueryContext(ctx, `SELECT * FROM "`+table+`"`) //nolint:gosec // a name from the database's own list
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return false, err
	}
	values, places := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		places[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return false, err
		}
		for _, v := range values {
			text, ok := v.(string)
			if data, bytes := v.([]byte); bytes {
				text, ok = string(data), true
			}
			if ok && HasOne(text, texts) {
				return true, nil
			}
		}
	}
	return false, rows.Err()
}

// HasOne reports whether a text has one of some others.
func HasOne(text string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool { return strings.Contains(text, other) })
}

// FilesWith returns the files below some directories that have one of some texts.
func FilesWith(texts []string, directories ...string) ([]string, error) {
	var out []string
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			var data []byte
			if err == nil && entry.Type().IsRegular() {
				data, err = os.ReadFile(path)
			}
			if HasOne(string(data), texts) {
				out = append(out, "file "+path)
			}
			if path != directory && errors.Is(err, fs.ErrNotExist) { // it was there for a moment
				return nil
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", directory, err)
		}
	}
	return out, nil
}
