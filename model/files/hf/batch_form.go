package hf

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// formArray is an array that a batch's file has if one of its rows has forms. Entry k of
// this array and of the three related arrays describes one completion and its form.
const formArray = "form_rows"

// forms holds the forms of all rows of a batch; equal forms are kept once.
type forms struct {
	distinct                     []json.RawMessage
	rows, starts, lengths, which []int32
}

func newForms(rows []model.BatchRow) (forms, error) {
	var f forms
	known := map[string]int{}
	for i, r := range rows {
		for _, x := range r.Forms {
			text, err := json.Marshal(x.Form)
			if err != nil {
				return forms{}, fmt.Errorf("row %d: form of token %d: %w", i, x.Start, err)
			}
			which, ok := known[string(text)]
			if !ok {
				which = len(f.distinct)
				known[string(text)], f.distinct = which, append(f.distinct, text)
			}
			f.rows, f.which = append(f.rows, int32(i)), append(f.which, int32(which))
			f.starts, f.lengths = append(f.starts, int32(x.Start)), append(f.lengths, int32(x.Length))
		}
	}
	return f, nil
}

// arrays returns the arrays for the file, and none if there are no forms.
func (f forms) arrays() []Array {
	if len(f.rows) == 0 {
		return nil
	}
	return []Array{
		NewArray(formArray, f.rows), NewArray("form_starts", f.starts), NewArray("form_lengths", f.lengths), NewArray("forms", f.which),
	}
}

// readForms sets the forms of rows. Batch.Check judges what they mean.
func readForms(arrays []Array, distinct []json.RawMessage, rows []model.BatchRow) error {
	if !has(arrays, formArray) {
		if len(distinct) > 0 {
			return fmt.Errorf("%w: %d forms, but no array %s", ErrFormat, len(distinct), formArray)
		}
		return nil
	}
	var f forms
	if err := errors.Join(readArray(arrays, formArray, &f.rows), readArray(arrays, "form_starts", &f.starts),
		readArray(arrays, "form_lengths", &f.lengths), readArray(arrays, "forms", &f.which)); err != nil {
		return err
	}
	n := len(f.rows)
	if len(f.starts) != n || len(f.lengths) != n || len(f.which) != n {
		return fmt.Errorf("%w: %d form_rows, %d form_starts, %d form_lengths, %d forms", ErrFormat, n, len(f.starts), len(f.lengths), len(f.which))
	}
	for k := range n {
		row, which := int(f.rows[k]), int(f.which[k])
		if row < 0 || row >= len(rows) || which < 0 || which >= len(distinct) {
			return fmt.Errorf("%w: form %d is number %d of %d and of row %d of %d", ErrFormat, k, which, len(distinct), row, len(rows))
		}
		form := model.BatchForm{Start: int(f.starts[k]), Length: int(f.lengths[k])}
		if err := json.Unmarshal(distinct[which], &form.Form); err != nil {
			return fmt.Errorf("%w: form %d: %w", ErrFormat, which, err)
		}
		rows[row].Forms = append(rows[row].Forms, form)
	}
	return nil
}

func has(arrays []Array, name string) bool {
	for _, a := range arrays {
		if a.Name == name {
			return true
		}
	}
	return false
}
