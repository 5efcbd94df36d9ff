package tasks

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// errFormat is wrapped by the error of a file in another format.
var errFormat = errors.New("it has no JSON")

// otherFormat returns an error that names the format of a file that has no JSON, by the
// file's name and its first bytes. It returns nil if the file may have JSON.
func otherFormat(name string, begin []byte) error {
	of := func(kind, remedy string) error { return fmt.Errorf("%w: it is %s: %s", errFormat, kind, remedy) }
	const convert = "convert it to one JSON object on each line"
	with := func(function string) string {
		return convert + ", as in pandas." + function + "(FILE).to_json(OUT, orient=\"records\", lines=True, force_ascii=False)"
	}
	if f, other := textfile.FormatOf(begin); other {
		switch {
		case f.Remedy != "":
			return of(f.Name, f.Remedy)
		case f.Name == textfile.Parquet:
			return of(f.Name, with("read_parquet"))
		}
		return of(f.Name, convert)
	}
	text := strings.TrimSpace(strings.TrimPrefix(string(begin), textfile.Mark))
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
		return of("CSV", with("read_csv"))
	case extension == ".yaml", extension == ".yml":
		return of("YAML", convert)
	}
	return nil
}
