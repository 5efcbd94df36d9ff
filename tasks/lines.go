package tasks

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

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
