package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// errArray is wrapped when a file without a family is a JSON array, as the files of some
// data sets are.
var errArray = errors.New("it is one JSON array; a file without a family before its name has a JSON object on each line")

// withHint adds a hint to an error of reading a file: what would have been right, if the
// file shows that.
func withHint(s spec.Source, err error) error {
	stat, missing := os.Stat(s.Path)
	var file *FileError
	switch {
	case errors.Is(missing, fs.ErrNotExist):
		if remedy := spec.FamilyRemedy(s.Path); remedy != "" && s.Family == "" {
			return fmt.Errorf("%w; %s", err, remedy)
		}
	case missing == nil && stat.IsDir():
		return errors.New(directoryText(s))
	case errors.Is(err, errArray), errors.As(err, &file):
		looks := layoutOf(firstRow(s.Path))
		switch {
		case looks != "" && looks != s.Family:
			return fmt.Errorf("%w\n%s looks like a file of %s: did you mean %s:%s?", err, s.Path, looks, looks, s.Path)
		case errors.Is(err, errArray):
			return fmt.Errorf("%w; those of data sets are named with their family, as in spider:FILE", err)
		}
	}
	return err
}

// directoryText returns an error text that says what to name instead of a directory.
func directoryText(s spec.Source) string {
	text := fmt.Sprintf("open tasks: %s is a directory: name a file in it", s.Path)
	if s.Family == "" {
		return text + fmt.Sprintf(", or %s:%s for tasks in Harbor's format", spec.Harbor, s.Path)
	}
	var found []string
	entries, _ := os.ReadDir(s.Path) // without entries the text makes no proposal
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".jsonl") && len(found) < shownPlaces {
			found = append(found, s.Family+":"+filepath.Join(s.Path, e.Name()))
		}
	}
	if len(found) > 0 {
		text += ", such as " + strings.Join(found, " or ")
	}
	return text
}

// firstRow returns the first row of a file, or nil if it can't be read.
func firstRow(path string) row {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	r, array, err := contentsOf(f)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(r)
	if array {
		if _, err := d.Token(); err != nil {
			return nil
		}
	}
	var fields row
	if d.Decode(&fields) != nil {
		return nil
	}
	return fields
}

// layoutOf returns the family of data sets whose rows have these fields, or "".
func layoutOf(fields row) string {
	switch {
	case fields.has("db_id") && (fields.has("query") || fields.has("SQL")):
		return spec.Spider
	case fields.has("question_decomposition"), fields.has("id") && fields.has("paragraphs"):
		return spec.MuSiQue
	case fields.has("evidences") && (fields.has("_id") || fields.has("id") && fields.has("supporting_facts")):
		return spec.TwoWiki
	case fields.has("context") && (fields.has("_id") || fields.has("id") && fields.has("supporting_facts")):
		return spec.HotpotQA
	case fields.has("question") && strings.Contains(string(fields["answer"]), answerMark):
		return spec.GSM8K
	}
	return ""
}
