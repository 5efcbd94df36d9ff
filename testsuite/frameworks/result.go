package main

import (
	"errors"
	"fmt"
	"io"
)

// result is what came of an example, or of a part of it.
type result struct {
	calls   int
	trained int      // tokens that the loss sees
	remarks []string // figures for people
	err     error
}

// with is r and another part of the same example.
func (r result) with(part result) result {
	return result{
		calls: r.calls + part.calls, trained: r.trained + part.trained,
		remarks: append(r.remarks, part.remarks...), err: errors.Join(r.err, part.err),
	}
}

func (r result) print(out io.Writer, name string) {
	for _, remark := range r.remarks {
		_, _ = fmt.Fprintf(out, "  %s\n", remark)
	}
	if r.err != nil {
		_, _ = fmt.Fprintf(out, "%s: failed\n", name)
		return
	}
	_, _ = fmt.Fprintf(out, "%s: calls %d, trained tokens %d, ok\n", name, r.calls, r.trained)
}
