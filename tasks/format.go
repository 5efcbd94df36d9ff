package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// sniffed is how many bytes of a file show its format.
const sniffed = 512

// errFormat is wrapped by the error of a file in another format.
var errFormat = errors.New("it has no JSON")

// otherFormat returns an error that names the format of a file that has no JSON, by the
// file's name and its first bytes. It returns nil if the file may have JSON.
func otherFormat(name string, begin []byte) error {
	of := func(kind, remedy string) error { return fmt.Errorf("%w: it is %s: %s", errFormat, kind, remedy) }
	const convert = "convert it to one JSON object on each line"
	for _, magic := range []struct{ begin, kind, remedy string }{
		{"PAR1", "a Parquet file", convert + ", as in pandas.read_parquet(FILE).to_json(OUT, orient=\"records\", lines=True, force_ascii=False)"},
		{"ARROW1", "an Arrow file", convert},
		{"\xff\xff\xff\xff", "an Arrow stream", convert},
		{"SQLite format 3\x00", "an SQLite database", convert},
		{"\x1f\x8b", "compressed by gzip", "unpack it first (gunzip)"},
		{"BZh", "compressed by bzip2", "unpack it first (bunzip2)"},
		{"\xfd7zXZ\x00", "compressed by xz", "unpack it first (unxz)"},
		{"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it first (unzstd)"},
		{"PK\x03\x04", "a ZIP archive", "unpack it first (unzip)"},
		{"\xff\xfe", "in UTF-16", "save it in UTF-8"},
		{"\xfe\xff", "in UTF-16", "save it in UTF-8"},
		{"%PDF", "a PDF file", convert},
		{"version https://git-lfs", "a pointer of Git LFS, not the file itself", "fetch the file (git lfs pull)"},
		{"{\x00", "in UTF-16", "save it in UTF-8"},
		{"\x00{", "in UTF-16", "save it in UTF-8"},
		{"[\x00", "in UTF-16", "save it in UTF-8"},
		{"\x00[", "in UTF-16", "save it in UTF-8"},
	} {
		if bytes.HasPrefix(begin, []byte(magic.begin)) {
			return of(magic.kind, magic.remedy)
		}
	}
	if len(begin) > 262 && bytes.HasPrefix(begin[257:], []byte("ustar")) {
		return of("a tar archive", "unpack it first (tar -xf)")
	}
	text := strings.TrimSpace(string(bytes.TrimPrefix(begin, []byte("\ufeff"))))
	if text == "" || strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "//") {
		return nil
	}
	first, _, _ := strings.Cut(text, "\n")
	switch lower, extension := strings.ToLower(text), strings.ToLower(filepath.Ext(name)); {
	case strings.HasPrefix(lower, "<!doctype") || strings.HasPrefix(lower, "<html") || strings.HasPrefix(lower, "<?xml"):
		return of("a page of HTML or XML", "look whether the download got an error or a page for signing in")
	case extension == ".tsv", strings.Contains(first, "\t"):
		return of("a table with tabs", convert)
	case extension == ".csv", strings.Contains(first, ",") && utf8.ValidString(first):
		return of("CSV", convert+", as in pandas.read_csv(FILE).to_json(OUT, orient=\"records\", lines=True, force_ascii=False)")
	case extension == ".yaml", extension == ".yml":
		return of("YAML", convert)
	}
	return nil
}
