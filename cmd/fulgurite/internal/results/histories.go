package results

import (
	"context"
	"errors"

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
	if errors.Is(err, archive.ErrNotEmpty) || errors.Is(err, archive.ErrNone) {
		return terminal.Usage(err)
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
	if !done.Complete {
		t.Printf("The run took longer than Temporal keeps histories, so some that closed early may be missing.\n")
	}
	return nil
}
