package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/store"
)

// findStore opens the store that a flag names, and looks at the directory of blobs. In a
// data directory both are made when they are first needed.
func findStore(s *state.Flags, r state.RecordFlags) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		out := []Finding{{Subject: "store", State: Found, Text: "SQLite, in " + s.Dir}}
		if _, err := os.Stat(s.Layout().Database()); err == nil && r.Store == "" {
			if own := openStore(ctx, s.Layout().Database(), s.Command("dev")); own.State != Found {
				out = []Finding{own}
			}
		}
		if r.Store != "" {
			out = []Finding{openStore(ctx, r.Store, s.WorkerCommand("migrate"))}
		}
		if r.Blobs == "" {
			return out
		}
		f := Finding{Subject: "blobs", State: Found, Text: r.Blobs}
		if stat, err := os.Stat(r.Blobs); err != nil || !stat.IsDir() || !writable(r.Blobs) {
			f.State, f.Text = Missing, r.Blobs+" is not a directory that can be written here"
			f.Fix = []string{"mount the directory of blobs that all machines share there, or make it: mkdir -p " + shell.Quote(r.Blobs)}
		}
		return append(out, f)
	}
}

// openStore asks the store at url for its runs. migrate is the command that makes its tables.
func openStore(ctx context.Context, url, migrate string) Finding {
	kind, fix := "SQLite", migrate+" # makes it; or correct --store or FULGURITE_STORE"
	path, err := store.FilePath(url)
	if err != nil {
		return Finding{Subject: "store", State: Missing, Text: err.Error(), Fix: []string{"correct --store or FULGURITE_STORE"}}
	}
	if path == "" {
		kind, fix = "PostgreSQL", "start PostgreSQL, or correct the address in --store or FULGURITE_STORE; put the password into PGPASSWORD"
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // opening would make one
		return Finding{Subject: "store", State: Missing, Text: "no SQLite store at " + path, Fix: []string{fix}}
	}
	f := Finding{Subject: "store", State: Missing, Fix: []string{fix}}
	opened, err := store.Open(ctx, url, nil)
	if err != nil {
		f.Text = err.Error()
		if errors.Is(err, store.ErrUnusable) {
			f.Fix = []string{"name another store in --store or FULGURITE_STORE, or use the program of the store's release"}
		}
		return f
	}
	defer func() { _ = opened.Close() }() // nothing was written
	runs, err := opened.Runs(ctx)
	if err != nil {
		f.Text, f.Fix = kind+": "+err.Error(), []string{migrate + " # makes its tables"}
		return f
	}
	return Finding{Subject: "store", State: Found, Text: kind + " answers, with " + readable.Count(len(runs), "run")}
}
