package completion

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// recorded reads names from the store that a command line means.
type recorded struct {
	ctx      context.Context //nolint:containedctx // it lives for one completion
	flags    state.Flags
	line     []string
	terminal *terminal.Terminal
}

// open opens the store. Whoever completes a command line is not told what is wrong with
// it; the command does that.
func (r *recorded) open() (fleet.Records, error) {
	quiet := &terminal.Terminal{Out: io.Discard, Err: io.Discard}
	if dir := valueOf(r.line, "--dir"); dir != "" {
		if whole, err := filepath.Abs(dir); err == nil {
			r.flags.Dir = whole
		}
	}
	records := state.RecordFlags{Store: os.Getenv("FULGURITE_STORE")}
	if url := valueOf(r.line, "--store"); url != "" {
		records.Store = url
	}
	return r.flags.OpenRecords(r.ctx, quiet, records)
}

// runs implements names.
func (r *recorded) runs() []string {
	records, err := r.open()
	if err != nil {
		return nil
	}
	defer records.Close()
	all, err := records.Store.Runs(r.ctx)
	if err != nil {
		return nil
	}
	out := make([]string, len(all))
	for i, run := range all {
		out[i] = run.Name
	}
	return out
}

// versions implements names.
func (r *recorded) versions(run string) []string {
	records, err := r.open()
	if err != nil {
		return nil
	}
	defer records.Close()
	all, err := records.Store.Versions(r.ctx, run, model.DefaultPolicy)
	if err != nil {
		return nil
	}
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = strconv.Itoa(v.Number)
	}
	return out
}

// valueOf returns the value of a flag in a command line, or "".
func valueOf(line []string, flag string) string {
	for i, word := range line {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
		if word == flag && i+1 < len(line) {
			return line[i+1]
		}
	}
	return ""
}
