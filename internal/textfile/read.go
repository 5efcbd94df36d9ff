package textfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"
)

// ErrText is wrapped by the errors of files that are not texts in UTF-8.
var ErrText = errors.New("no text in UTF-8")

// NotUTF8 is the error of a text that is not in UTF-8.
type NotUTF8 struct {
	Line int // the first such line, from 1
}

// Encoding is what to do with a text that is not in UTF-8.
const Encoding = "save the file in UTF-8 (it may be in Latin-1)"

// Error names the line.
func (e *NotUTF8) Error() string { return fmt.Sprintf("line %d is not UTF-8: %s", e.Line, Encoding) }

// Unwrap returns ErrText.
func (e *NotUTF8) Unwrap() error { return ErrText }

// otherFormat is the error of a file in another format.
type otherFormat struct{ Format }

func (e otherFormat) Error() string {
	if e.Remedy == "" {
		return fmt.Sprintf("it is %s, where a text in UTF-8 is expected", e.Name)
	}
	return fmt.Sprintf("it is %s: %s", e.Name, e.Remedy)
}

func (e otherFormat) Unwrap() error { return ErrText }

// Decode returns the text that a file holds, without a byte order mark. Ends of lines stay
// as they are. An error wraps ErrText; that of a text in another encoding is a *NotUTF8.
func Decode(data []byte) ([]byte, error) {
	if f, other := FormatOf(data[:min(len(data), Begin)]); other {
		return nil, otherFormat{f}
	}
	text := bytes.TrimPrefix(data, []byte(Mark))
	if line := firstOther(text); line > 0 {
		return nil, &NotUTF8{line}
	}
	return text, nil
}

// Mark is the byte order mark, which some editors put before a text.
const Mark = "\ufeff"

// firstOther returns the first line that is not UTF-8, from 1, or 0 if all are.
func firstOther(text []byte) int {
	if utf8.Valid(text) {
		return 0
	}
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return 1 + bytes.Count(text[:at], []byte("\n"))
}

// Read reads the file at path as Decode does. Its errors name the file.
func Read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err // it names the operation and the file
	}
	text, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}
