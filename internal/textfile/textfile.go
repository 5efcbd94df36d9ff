// Package textfile reads the texts that people and their programs save: specs, tasks,
// results, templates and the settings of models. All of them are in UTF-8, with or without a
// byte order mark, and their lines may end with CR LF. A file in another format is refused
// by the name of that format, and a text in another encoding by its first such line, so
// that no reader takes the bytes for something else.
//
// It knows nothing of what a text says.
package textfile

import (
	"bytes"
	"encoding/binary"
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

// Begin is how many bytes at the beginning of a file FormatOf needs.
const Begin = 512

// Format is the format of a file that is not a text in UTF-8.
type Format struct {
	// Name completes "it is …".
	Name string
	// Remedy says how the file becomes a text. It is empty if that depends on what the text
	// is for.
	Remedy string
}

// Names of formats that readers treat in their own way.
const (
	Parquet     = "a Parquet file"
	Safetensors = "a safetensors file"
	GGUF        = "a GGUF model"
	Binary      = "a binary file"
	ZIP         = "a ZIP archive"
)

// signature is how the files of a format begin.
type signature struct {
	begin string
	Format
}

const saveInUTF8 = "save it in UTF-8"

// signatures are in the order in which they are looked for.
func signatures() []signature {
	wide, widest := Format{"in UTF-16", saveInUTF8}, Format{"in UTF-32", saveInUTF8}
	return []signature{
		{"PAR1", Format{Parquet, ""}},
		{"ARROW1", Format{"an Arrow file", ""}},
		{"\xff\xff\xff\xff", Format{"an Arrow stream", ""}},
		{"SQLite format 3\x00", Format{"an SQLite database", ""}},
		{"GGUF", Format{GGUF, ""}},
		{"\x93NUMPY", Format{"a NumPy array", ""}},
		{"\x89HDF", Format{"an HDF5 file", ""}},
		{"%PDF", Format{"a PDF file", ""}},
		{"\x7fELF", Format{"a program", ""}},
		{"\x1f\x8b\x08", Format{"compressed by gzip", "unpack it first (gunzip)"}},
		{"BZh", Format{"compressed by bzip2", "unpack it first (bunzip2)"}},
		{"\xfd7zXZ\x00", Format{"compressed by xz", "unpack it first (unxz)"}},
		{"\x28\xb5\x2f\xfd", Format{"compressed by zstd", "unpack it first (unzstd)"}},
		{"\x04\x22\x4d\x18", Format{"compressed by lz4", "unpack it first (unlz4)"}},
		{"7z\xbc\xaf\x27\x1c", Format{"a 7z archive", "unpack it first (7z x)"}},
		{"PK\x03\x04", Format{ZIP, "unpack it first (unzip)"}},
		{"version https://git-lfs", Format{"a pointer of Git LFS, not the file itself", "fetch the file (git lfs pull)"}},
		{"\x00\x00\xfe\xff", widest},
		{"\xff\xfe\x00\x00", widest},
		{"\xff\xfe", wide},
		{"\xfe\xff", wide},
	}
}

// FormatOf returns the format of a file that begins with these bytes. It returns false if
// the file may be a text in UTF-8.
func FormatOf(begin []byte) (Format, bool) {
	if isSafetensors(begin) { // the length that it begins with may be any bytes
		return Format{Safetensors, ""}, true
	}
	for _, s := range signatures() {
		if bytes.HasPrefix(begin, []byte(s.begin)) {
			return s.Format, true
		}
	}
	switch {
	case isTar(begin):
		return Format{"a tar archive", "unpack it first (tar -xf)"}, true
	case isWide(begin):
		return Format{"in UTF-16", saveInUTF8}, true
	case len(begin) > 1 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5:
		return Format{"a Python pickle", ""}, true
	case bytes.IndexByte(begin, 0) >= 0:
		return Format{Binary, ""}, true
	}
	return Format{}, false
}

// isTar reports whether bytes begin a tar archive, which has its name at byte 257.
func isTar(begin []byte) bool {
	const at = 257
	return len(begin) > at && bytes.HasPrefix(begin[at:], []byte("ustar"))
}

// isWide reports whether bytes begin a text in UTF-16 without a byte order mark. The
// first two characters of what is read here are ASCII.
func isWide(begin []byte) bool {
	if len(begin) < 4 {
		return false
	}
	return begin[0] != 0 && begin[1] == 0 && begin[2] != 0 && begin[3] == 0 ||
		begin[0] == 0 && begin[1] != 0 && begin[2] == 0 && begin[3] != 0
}

// isSafetensors reports whether bytes begin a file of tensors: the length of its header, and
// the header, a JSON object.
func isSafetensors(begin []byte) bool {
	const length, longest = 8, 100_000_000
	return len(begin) > length && begin[length] == '{' && binary.LittleEndian.Uint64(begin) < longest
}
