package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// readTasks reads the tasks of a data set's file. Their ids differ from each other.
// Errors are those of readRows.
func readTasks(path string, parse func(fields row, number int) (Task, error)) ([]Task, error) {
	first := map[string]int{}
	return readRows(path, func(fields row, number int) (Task, error) {
		t, err := parse(fields, number)
		if err != nil {
			return t, err
		}
		if earlier, ok := first[t.ID]; ok {
			return t, fmt.Errorf("id %q stands in row %d already", t.ID, earlier)
		}
		first[t.ID] = number
		return t, nil
	})
}

// readRows reads the rows of a data set's file, which is one JSON array or has a
// JSON object on each line. parse gets a row and its number, counted from 0. Errors
// are those of readLines; in an array they name rows.
func readRows[T any](path string, parse func(fields row, number int) (T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // it names what was tried, and the file
	}
	defer f.Close()
	number := -1
	one := func(text []byte, _ int) (T, error) {
		number++
		var fields row
		if err := decode(text, &fields); err != nil {
			var none T
			return none, err
		}
		return parse(fields, number)
	}
	r := bufio.NewReader(f)
	if begin, err := r.Peek(3); err == nil && string(begin) == "\ufeff" {
		_, _ = r.Discard(len(begin)) // they are in the buffer
	}
	if array, err := beginsArray(r); err != nil || !array {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		return readLines(r, path, one)
	}
	return readArray(r, path, one)
}

// beginsArray reports whether the first character that is no blank opens a JSON
// array, and leaves it to be read.
func beginsArray(r *bufio.Reader) (bool, error) {
	for {
		c, err := r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case c != ' ' && c != '\n' && c != '\r' && c != '\t':
			return c == '[', r.UnreadByte()
		}
	}
}

// readArray reads a JSON array with parse, one element at a time.
func readArray[T any](r io.Reader, name string, parse func(text []byte, number int) (T, error)) ([]T, error) {
	var list []T
	faults := &FileError{Name: name, unit: "row "}
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
			faults.add(number, errUTF8)
			continue
		}
		item, err := parse(text, number)
		if err != nil {
			faults.add(number, err)
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
	if err := faults.err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("read %s: %w", name, ErrEmpty)
	}
	return list, nil
}

// row is an object of a data set's file.
type row map[string]json.RawMessage

// has reports whether the row has the key, and more than null there.
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
		return "", fmt.Errorf("%s is no text", key)
	}
	if len(bytes.TrimSpace([]byte(text))) == 0 {
		return "", fmt.Errorf("empty %s", key)
	}
	return text, nil
}
