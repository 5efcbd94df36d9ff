package dataset

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// ErrFormat is wrapped when the extension of a file's name is no known format.
var ErrFormat = errors.New("unknown format")

// extensionLines is the extension of a file with a JSON object on each line.
const extensionLines = ".jsonl"

// rowGroup is how many rows form a row group of a Parquet file.
const rowGroup = 1024

// sink takes rows of one kind.
type sink[T any] interface {
	put(row T) error
	close() error
}

// WriteFile writes the rows that read yields to a file, in the format of its extension:
// ".jsonl" or ".parquet". The file appears only when it is complete; until then, an
// earlier file with its name stays. WriteFile returns the number of rows.
//
// A pipe or a device, such as /dev/stdout, is written as the rows come, as JSONL if its name
// has no extension.
func WriteFile[T any](ctx context.Context, path string, read func(context.Context, func(T) error) error) (rows int, err error) {
	return writeFile(ctx, path, open[T], read)
}

// WriteLines does what WriteFile does, for rows that no table can hold: only ".jsonl" is a
// format of theirs.
func WriteLines[T any](ctx context.Context, path string, read func(context.Context, func(T) error) error) (rows int, err error) {
	return writeFile(ctx, path, func(extension string, w io.Writer) (sink[T], error) {
		if extension != extensionLines {
			return nil, fmt.Errorf("%w %q: give a name that ends in .jsonl", ErrFormat, extension)
		}
		return open[T](extension, w)
	}, read)
}

// opener begins a file in the format of an extension.
type opener[T any] func(extension string, w io.Writer) (sink[T], error)

func writeFile[T any](ctx context.Context, path string, open opener[T], read func(context.Context, func(T) error) error) (rows int, err error) {
	if IsStream(path) {
		return writeStream(ctx, path, open, read)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, fmt.Errorf("create %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, temporary.Close(), os.Remove(temporary.Name()))
		}
	}()
	if rows, err = write(ctx, filepath.Ext(path), path, temporary, open, read); err != nil {
		return rows, err
	}
	return rows, finish(temporary, path)
}

// IsStream reports whether a path is that of a pipe or a device.
func IsStream(path string) bool {
	if strings.HasPrefix(path, "/dev/") { // it may lead to a file to which a shell redirects the output
		return true
	}
	stat, err := os.Stat(path)
	return err == nil && !stat.Mode().IsRegular() && !stat.IsDir()
}

func writeStream[T any](ctx context.Context, path string, open opener[T], read func(context.Context, func(T) error) error) (int, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	rows, err := write(ctx, cmp.Or(filepath.Ext(path), extensionLines), path, f, open, read)
	return rows, errors.Join(err, f.Close())
}

// write writes the rows in the format of an extension.
func write[T any](ctx context.Context, extension, path string, to io.Writer, open opener[T], read func(context.Context, func(T) error) error) (rows int, err error) {
	out, err := open(extension, to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	err = read(ctx, func(row T) error {
		rows++
		if err := out.put(row); err != nil {
			return fmt.Errorf("write row %d: %w", rows, err)
		}
		return ctx.Err()
	})
	if err = errors.Join(err, out.close()); err != nil {
		return rows, fmt.Errorf("write %s: %w", path, err)
	}
	return rows, nil
}

// finish gives a completely written file its name.
func finish(f *os.File, path string) error {
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}

func open[T any](extension string, w io.Writer) (sink[T], error) {
	switch extension {
	case extensionLines:
		buffered := bufio.NewWriter(w)
		encoder := json.NewEncoder(buffered)
		encoder.SetEscapeHTML(false)
		return lines[T]{encoder, buffered}, nil
	case ".parquet":
		return table[T]{parquet.NewGenericWriter[T](w, parquet.MaxRowsPerRowGroup(rowGroup), parquet.Compression(&parquet.Zstd))}, nil
	}
	return nil, fmt.Errorf("%w %q: give a name that ends in .jsonl or .parquet", ErrFormat, extension)
}

type lines[T any] struct {
	encoder  *json.Encoder
	buffered *bufio.Writer
}

func (l lines[T]) put(row T) error { return l.encoder.Encode(row) }
func (l lines[T]) close() error    { return l.buffered.Flush() }

type table[T any] struct{ *parquet.GenericWriter[T] }

func (t table[T]) put(row T) error {
	_, err := t.Write([]T{row})
	return err
}
func (t table[T]) close() error { return t.Close() }
