package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// place is the place of a row in its file.
type place struct {
	number int // from 0, without blank lines
	line   int // from 1; -1 in a JSON array
}

// String returns the place in the form that errors about the file use.
func (p place) String() string {
	if p.line < 0 {
		return fmt.Sprintf("row %d", p.number)
	}
	return fmt.Sprintf("line %d", p.line)
}

// readTasks reads the tasks of a data set's file. No two tasks may have the same id. Its
// errors are those of readRows.
func readTasks(path string, parse func(fields row, number int) (Task, error)) ([]Task, error) {
	first := map[string]place{}
	return readRows(path, "tasks", func(fields row, at place) (Task, error) {
		t, err := parse(fields, at.number)
		if err != nil {
			return t, err
		}
		if earlier, ok := first[t.ID]; ok {
			return t, fmt.Errorf("id %q is in %s already", t.ID, earlier)
		}
		first[t.ID] = at
		return t, nil
	})
}

// readRows reads the rows of a data set's file, which is one JSON array or has one JSON
// object per line. parse gets a row and its place. Its errors are those of readLines; for
// an array they name rows.
func readRows[T any](path, noun string, parse func(fields row, at place) (T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // the error names the operation and the file
	}
	defer f.Close()
	r, array, err := contentsOf(f)
	if err != nil {
		return nil, err
	}
	number := -1
	one := func(text []byte, line int) (T, error) {
		number++
		var fields row
		if err := decode(text, &fields); err != nil {
			var none T
			return none, err
		}
		if array {
			line = -1
		}
		return parse(fields, place{number, line})
	}
	if !array {
		return readLines(r, path, noun, one)
	}
	return readArray(r, path, noun, one)
}

// contentsOf returns the contents of a file, and whether they are a JSON array.
func contentsOf(f *os.File) (r *bufio.Reader, array bool, err error) {
	if stat, err := f.Stat(); err == nil && stat.IsDir() {
		return nil, false, fmt.Errorf("read %s: it is a directory: name a file in it", f.Name())
	}
	return contents(f, f.Name())
}

// contents works like contentsOf for what is read from r under a name.
func contents(from io.Reader, name string) (r *bufio.Reader, array bool, err error) {
	r = bufio.NewReader(from)
	known, _ := r.Peek(textfile.Begin) // what is shorter is in known, too; reading reports any other error
	if err := otherFormat(name, known); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", name, err)
	}
	if begin, err := r.Peek(len(textfile.Mark)); err == nil && string(begin) == textfile.Mark {
		_, _ = r.Discard(len(begin)) // can't fail: the bytes are in the buffer
	}
	if array, err = beginsArray(r); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", name, err)
	}
	return r, array, nil
}

// beginsArray reports whether the first character that is not blank opens a JSON array.
// It consumes nothing of r, so that lines can still be counted.
func beginsArray(r *bufio.Reader) (bool, error) {
	for n := 1; ; n++ {
		begin, err := r.Peek(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
			return false, nil
		case err != nil:
			return false, err
		}
		if c := begin[n-1]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c == '[', nil
		}
	}
}

// readArray reads a JSON array, one element at a time, with parse, as readLines reads
// lines.
func readArray[T any](r io.Reader, name, noun string, parse func(text []byte, number int) (T, error)) ([]T, error) {
	var list []T
	faults := &FileError{Name: name, rows: true}
	d := json.NewDecoder(r)
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	number := 0
	for ; d.More(); number++ {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return nil, fmt.Errorf("read %s: row %d: no JSON: %w", name, number, err)
		}
		if !utf8.Valid(text) {
			faults.Add(strconv.Itoa(number), errUTF8)
			continue
		}
		item, err := parse(text, number)
		if err != nil {
			faults.Add(strconv.Itoa(number), err)
			continue
		}
		list = append(list, item)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read %s: the array does not end after row %d: %w", name, number-1, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: something follows the array", name)
	}
	if len(faults.List) > 0 {
		return list, faults
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("read %s: no %s: %w", name, noun, ErrEmpty)
	}
	return list, nil
}

// row is an object of a data set's file.
type row map[string]json.RawMessage

// has reports whether the row has the key with a value other than null.
func (r row) has(key string) bool {
	value, ok := r[key]
	return ok && !bytes.Equal(value, []byte("null"))
}

// text returns the value at key, which must be text and not blank.
func (r row) text(key string) (string, error) {
	if !r.has(key) {
		return "", fmt.Errorf("no %s", key)
	}
	var text string
	if json.Unmarshal(r[key], &text) != nil {
		return "", fmt.Errorf("%s is not a text", key)
	}
	if len(bytes.TrimSpace([]byte(text))) == 0 {
		return "", fmt.Errorf("empty %s", key)
	}
	return text, nil
}
