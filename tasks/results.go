package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Result is what an agent returned for a task.
type Result struct {
	ID   json.RawMessage // the task's id, as it was written
	Task Task
	Text string // the result; JSON of another type than text is kept as its text
}

// ReadResults reads results of the tasks in a list, one JSON object per line:
//
//	{"id": "a1", "result": "33"}
//
// Its rules and errors are those of Open for such a file, except that an id may occur
// several times and that other keys are ignored.
func ReadResults(from io.Reader, name string, list []Task) ([]Result, error) {
	r, array, err := contents(from, name)
	switch {
	case err != nil:
		return nil, err
	case array:
		return nil, fmt.Errorf("read %s: it is one JSON array: write one result, a JSON object, on each line", name)
	}
	byID := make(map[string]Task, len(list))
	for _, t := range list {
		byID[t.ID] = t
	}
	return readLines(r, name, "results", func(text []byte, _ int) (Result, error) { return parseResult(text, byID) })
}

func parseResult(text []byte, byID map[string]Task) (Result, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return Result{}, fmt.Errorf(`want a JSON object {"id": …, "result": …}, not a JSON %s`, kind.Value)
		}
		return Result{}, fmt.Errorf(`want a JSON object {"id": …, "result": …}: %w`, err)
	}
	for _, key := range []string{"id", "result"} {
		if value, ok := fields[key]; !ok || string(value) == "null" {
			return Result{}, fmt.Errorf("no %s", key)
		}
	}
	r := Result{ID: fields["id"], Text: textOf(fields["result"])}
	id := textOf(r.ID)
	var known bool
	if r.Task, known = byID[id]; !known {
		return r, fmt.Errorf("no task has the id %q", id)
	}
	return r, nil
}
