package tasks

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// shownFaults is how many bad lines an error lists.
const shownFaults = 20

// LineFault is a bad line of a JSONL file, or a bad row of a JSON array.
type LineFault struct {
	Line   int // from 1; a row's number from 0
	Reason string
}

// FileError is a file of tasks or demonstrations that can't be used.
type FileError struct {
	Name string
	unit string // what Line counts, if it isn't lines
	// Faults are the first of the bad lines, and More counts those beyond them.
	Faults []LineFault
	More   int
}

// Error lists the faults, one on a line, as file:line: reason or file:row n: reason.
func (e *FileError) Error() string {
	var lines []string
	for _, f := range e.Faults {
		lines = append(lines, fmt.Sprintf("%s:%s%d: %s", e.Name, e.unit, f.Line, f.Reason))
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

func (e *FileError) add(line int, err error) {
	if len(e.Faults) == shownFaults {
		e.More++
		return
	}
	e.Faults = append(e.Faults, LineFault{line, err.Error()})
}

// err is e as an error, nil when there is no fault.
func (e *FileError) err() error {
	if len(e.Faults) == 0 {
		return nil
	}
	return e
}

// ErrEmpty is wrapped by the error of a file without a single item.
var ErrEmpty = errors.New("no lines")

var errUTF8 = errors.New("no valid UTF-8")

// line is one line that is not blank, without its end, or the error of reading it.
type line struct {
	number int
	text   []byte
}

// linesOf yields the lines of r that are not blank, of any length. A byte order
// mark and carriage returns at the ends of lines are left out. It stops at the
// first error of r, which it yields.
func linesOf(r io.Reader) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		reader := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			text, err := reader.ReadBytes('\n')
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte("\ufeff"))
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

// readLines reads each line of a JSONL file with parse, which gets the line's
// number too, and collects what goes wrong.
func readLines[T any](r io.Reader, name string, parse func(text []byte, number int) (T, error)) ([]T, error) {
	var items []T
	faults := &FileError{Name: name}
	for l, err := range linesOf(r) {
		if err != nil {
			return nil, fmt.Errorf("read %s line %d: %w", name, l.number, err)
		}
		if !utf8.Valid(l.text) {
			faults.add(l.number, errUTF8)
			continue
		}
		item, err := parse(l.text, l.number)
		if err != nil {
			faults.add(l.number, err)
			continue
		}
		items = append(items, item)
	}
	if err := faults.err(); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("read %s: %w", name, ErrEmpty)
	}
	return items, nil
}
