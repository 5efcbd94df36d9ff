package results

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/archive"
)

// Histories is `fulgurite histories`.
type Histories struct {
	Run_      string            `arg:"" name:"run" help:"The run."`
	Directory string            `arg:"" help:"Where to write the files: a directory that is empty or not there." type:"path"`
	JSON      bool              `help:"Print JSON." name:"json"`
	Records   state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Histories) Outputs() []any { return []any{archive.Extraction{}} }

// Run writes the histories. It asks Temporal only for those of a run without an archive.
func (c *Histories) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	run, err := records.Store.Run(ctx, c.Run_)
	if err != nil {
		return err
	}
	closeClient := func() {}
	defer func() { closeClient() }()
	done, err := archive.Extract(ctx, records.Store, records.Blobs, run, func() (archive.Temporal, error) {
		client, namespace, err := s.DialNamespace(ctx, t)
		if err != nil {
			return archive.Temporal{}, err
		}
		closeClient = client.Close
		return archive.Temporal{Client: client, Namespace: namespace}, nil
	}, c.Directory)
	for _, theirs := range []error{archive.ErrNotEmpty, archive.ErrFile, archive.ErrNone, archive.ErrChanged} {
		if errors.Is(err, theirs) {
			return terminal.Usage(err)
		}
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(done)
	}
	events := int64(0)
	for _, h := range done.Histories {
		events += h.Events
	}
	from := "its archive"
	if done.From == archive.FromTemporal {
		from = "Temporal"
	}
	t.Printf("%s of run %s with %s, from %s, are in %s\n", readable.Count(len(done.Histories), "history"), run.Name, readable.Count(int(events), "event"), from, done.Directory)
	if done.Open > 0 {
		t.Printf("%s, so the files end where the histories end now.\n", readable.Are(done.Open, "workflow", "still under way"))
	}
	for _, gap := range done.Gaps {
		t.Printf("Some may be missing: %s.\n", gapText(gap, done.Missing))
	}
	return nil
}

// gapText says why histories may be missing.
func gapText(gap archive.Gap, missing []archive.Missing) string {
	open := 0
	for _, one := range missing {
		if one.Open {
			open++
		}
	}
	switch gap {
	case archive.GapArchive:
		return "the file of an earlier archive of the run is gone"
	case archive.GapDeleted:
		return fmt.Sprintf("%s deleted in Temporal before that was archived; the manifest says which", readable.Were(len(missing)-open, "workflow"))
	case archive.GapOpen:
		return fmt.Sprintf("%s below the run still under way when the run was archived; the manifest says which", readable.Were(open, "workflow"))
	case archive.GapRetention:
		return "nothing archived the run for longer than Temporal keeps histories"
	case archive.GapTask:
		return "a task was forgotten, and what Temporal had of it is deleted"
	}
	return string(gap)
}
