// Package backup holds the commands that copy the directory of a stack, or the store and the
// blobs of a fleet, and make them out of such a copy again.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// Command is `fulgurite backup`.
type Command struct {
	Directory string            `arg:"" name:"directory" help:"Where the backup goes. The next backup to the same directory copies only what is new." type:"path"`
	JSON      bool              `help:"Print JSON." name:"json"`
	Records   state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{backup.Report{}} }

// Run makes a backup.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Records.Store != "" || c.Records.Blobs != "" {
		return c.fleet(ctx, s, t)
	}
	from := places(s.Dir)
	if _, err := os.Stat(from.Store); errors.Is(err, fs.ErrNotExist) {
		return terminal.Usagef("no runs in %s: choose the directory with --dir", s.Dir)
	}
	report, err := backup.Write(ctx, c.Directory, from, c.options(s, nil))
	if err != nil {
		return refused(err)
	}
	if c.JSON {
		return t.JSON(report)
	}
	m := report.Manifest
	t.Printf("Backup of %s in %s, as it was at %s\n", s.Dir, report.Directory, readable.Time(m.Began))
	t.Printf("  runs       %d\n", len(m.Runs))
	size := int64(0)
	for _, f := range m.Files {
		size += f.Bytes
	}
	t.Printf("  databases  %s\n", readable.Bytes(size))
	printBlobs(t, report)
	t.Printf("It took %.1f s. To go on from it:  %s\n", report.Seconds, s.Command("restore", report.Directory))
	return nil
}

// options make a backup known to forget before it is made, so that it hears of everything that is
// forgotten from then on.
func (c *Command) options(s *state.Flags, tell func(backup.Progress)) backup.Options {
	return backup.Options{Release: build.This("").Version, Tell: tell, Begun: func(directory string) ([]string, error) {
		if err := s.AddBackups(c.Records, directory); err != nil {
			return nil, fmt.Errorf("note that there is a backup, which forget has to know: %w", err)
		}
		return s.Backups(c.Records)
	}}
}

func printBlobs(t *terminal.Terminal, report backup.Report) {
	m := report.Manifest
	t.Printf("  blobs      %s, %s\n", readable.Count(m.BlobFiles, "file"), readable.Bytes(m.BlobBytes))
	t.Printf("             %d of them new, %s; %d removed that it no longer needs\n", report.NewFiles, readable.Bytes(report.NewBytes), report.RemovedFiles)
}

// places says where the parts of a stack's directory are.
func places(directory string) backup.Places {
	l := stack.Layout(directory)
	return backup.Places{Store: l.Database(), Temporal: filepath.Join(l.Temporal(), "temporal.db"), Blobs: l.Blobs()}
}

// refused makes a usage error of an error that only another command line helps against.
func refused(err error) error {
	for _, one := range []error{backup.ErrPlace, backup.ErrDatabase, backup.ErrNone, backup.ErrRelease, backup.ErrBusy} {
		if errors.Is(err, one) {
			return terminal.Usage(err)
		}
	}
	return err
}
