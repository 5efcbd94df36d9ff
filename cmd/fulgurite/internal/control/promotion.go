package control

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/user"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/pointer"
	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// mover is what every command asks that moves the promoted pointer.
type mover struct {
	By      string            `help:"Who does it (default: user@host)." placeholder:"NAME"`
	Records state.RecordFlags `embed:""`
}

// Rollback is `fulgurite rollback`.
type Rollback struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	To     *int   `help:"Version to promote (default: the one promoted before)." placeholder:"VERSION"`
	Reason string `help:"Why; it stays on record." required:"" placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run also works on runs that have ended: the pointer is in the store.
func (c *Rollback) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, c.Run_, func(h pointer.Mover) (record.Promotion, error) { return h.Rollback(ctx, c.To, c.Reason) })
}

// Pin is `fulgurite pin`.
type Pin struct {
	Run_    string `arg:"" name:"run" help:"Name of the run."`
	Version int    `arg:"" help:"Version to promote and hold."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover   mover  `embed:""`
}

// Run promotes the version and holds it.
func (c *Pin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, c.Run_, func(h pointer.Mover) (record.Promotion, error) { return h.Pin(ctx, c.Version, c.Reason) })
}

// Unpin is `fulgurite unpin`.
type Unpin struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run lets the run promote again.
func (c *Unpin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, c.Run_, func(h pointer.Mover) (record.Promotion, error) { return h.Unpin(ctx, c.Reason) })
}

func (m mover) move(ctx context.Context, s *state.Flags, t *terminal.Terminal, run string, move func(pointer.Mover) (record.Promotion, error)) error {
	records, err := s.OpenRecords(ctx, t, m.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	p, err := move(pointer.Mover{Store: records.Store, Run: run, Policy: model.DefaultPolicy, By: cmp.Or(m.By, person())})
	if errors.Is(err, pointer.ErrRefused) {
		return terminal.Usage(err)
	}
	if err == nil {
		t.Printf("%s\n", report.Move(p))
	}
	return err
}

// person is who runs this process, as user@host.
func person() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
