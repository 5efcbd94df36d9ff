package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
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

// ErrEmpty is wrapped by the error of a file without a single item.
var ErrEmpty = errors.New("it holds none")

var errUTF8 = errors.New("no valid UTF-8: " + textfile.Encoding)

// line is one line that is not blank, without its end, or the error of reading it.
type line struct {
	number int
	text   []byte
}

// linesOf yields the lines of r that are not blank. A line may have any length. A byte
// order mark and carriage returns at the ends of lines are left out. It yields the first
// error of r and then stops.
func linesOf(r io.Reader) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		reader := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			text, err := reader.ReadBytes('\n')
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte(textfile.Mark))
			}
			text = bytes.TrimSpace(text)
			if len(text) > 0 && !yield(line{number, text}, nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(line{number: number}, err)
				return
			}
		}
	}
}

// readLines reads each line of a JSONL file with parse, which also gets the line's
// number, and collects the faults: the error is then a *FileError, and the items are those
// of the other lines. noun names the items that the file should have.
func readLines[T any](r io.Reader, name, noun string, parse func(text []byte, number int) (T, error)) ([]T, error) {
	var items []T
	faults := &FileError{Name: name}
	for l, err := range linesOf(r) {
		if err != nil {
			return nil, fmt.Errorf("read %s line %d: %w", name, l.number, err)
		}
		if !utf8.Valid(l.text) {
			faults.Add(strconv.Itoa(l.number), errUTF8)
			continue
		}
		item, err := parse(l.text, l.number)
		if err != nil {
			faults.Add(strconv.Itoa(l.number), err)
			continue
		}
		items = append(items, item)
	}
	if len(faults.List) > 0 {
		return items, faults
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("read %s: no %s: %w", name, noun, ErrEmpty)
	}
	return items, nil
}

// longestID is the largest number of bytes of a task's id.
const longestID = 200

// ReadJSONL reads tasks, one JSON object per line:
//
//	{"id": "a1", "input": "12+7*3", "answer": "33", "metadata": {"operands": 3}}
//
// id and input are required. input and answer may be JSON of any type; JSON that is not a
// string is kept as its text. An id is a string or a number, and no two tasks have the
// same id. Other keys have to be under metadata. Blank lines, a byte order mark and
// carriage returns are skipped. name is the file's name, for errors. Errors about lines
// are a *FileError, and the error for a file without tasks wraps ErrEmpty.
func ReadJSONL(r io.Reader, name string) ([]Task, error) {
	first := map[string]int{}
	return readLines(r, name, "tasks", func(text []byte, number int) (Task, error) {
		t, err := parseTask(text)
		if err != nil {
			return t, err
		}
		if earlier, ok := first[t.ID]; ok {
			return t, fmt.Errorf("id %q is in line %d already", t.ID, earlier)
		}
		first[t.ID] = number
		return t, nil
	})
}

func parseTask(text []byte) (Task, error) {
	var object map[string]json.RawMessage
	if err := decode(text, &object); err != nil {
		return Task{}, err
	}
	var t Task
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		var err error
		switch value := object[key]; key {
		case "id":
			t.ID, err = id(value)
		case "input":
			t.Input = textOf(value)
		case "answer":
			t.Answer = textOf(value)
		case "metadata":
			if err = decode(value, &t.Metadata); err != nil {
				err = errors.New("metadata is not a JSON object")
			}
		default:
			err = fmt.Errorf("unknown key %q; put it under metadata, which agents see, or, if it tells the answer, into answer, which they never see", key)
		}
		if err != nil {
			faults = append(faults, err.Error())
		}
	}
	for _, key := range []string{"id", "input"} {
		if value, ok := object[key]; !ok || string(value) == "null" {
			faults = append(faults, "no "+key)
		}
	}
	if len(faults) > 0 {
		return Task{}, errors.New(strings.Join(faults, "; "))
	}
	return t, nil
}

// decode reads one JSON value and returns an error if anything follows it. In values of
// any type, numbers keep their text.
func decode(text []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind) && kind.Field == "":
			return fmt.Errorf("a JSON %s where an object is expected", kind.Value)
		case errors.As(err, &kind):
			return fmt.Errorf("%s can't be a JSON %s", kind.Field, kind.Value)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the line ends in the middle of its JSON")
		}
		return fmt.Errorf("no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func id(value json.RawMessage) (string, error) {
	if value[0] != '"' && value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		if string(value) == "null" {
			return "", nil // reported as missing
		}
		return "", errors.New("id is neither text nor a number")
	}
	text := textOf(value)
	switch {
	case text == "":
		return "", errors.New("empty id")
	case len(text) > longestID:
		return "", fmt.Errorf("id of %d bytes; at most %d are allowed", len(text), longestID)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("id %q has a control character", text)
	}
	return text, nil
}

// textOf returns the text of a JSON string, "" for null, and for anything else the JSON
// without white space.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return string(value)
	}
	return b.String()
}

// Encode writes tasks as canonical JSONL. Equal tasks give equal bytes, so a snapshot can
// be named by its digest. Encode fails only for metadata that JSON can't represent.
func Encode(list []Task) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, t := range list {
		if err := e.Encode(t); err != nil {
			return nil, fmt.Errorf("encode task %s: %w", t.ID, err)
		}
	}
	return b.Bytes(), nil
}

// Decode reads what Encode has written.
func Decode(data []byte) ([]Task, error) { return ReadJSONL(bytes.NewReader(data), "snapshot") }
