package control

import (
	"cmp"
	"context"
	"errors"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
)

// mover has the flags of every command that moves the promoted pointer.
type mover struct {
	By      string            `help:"Who does it (default: user@host)." placeholder:"NAME"`
	Records state.RecordFlags `embed:""`
}

// Promote is `fulgurite promote`.
type Promote struct {
	Run_    string `arg:"" name:"run" help:"Name of the run."`
	Version int    `arg:"" help:"Version to promote."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover   mover  `embed:""`
}

// Run promotes the version, and leaves the run free to promote another.
func (c *Promote) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionPromote, Reason: c.Reason, Input: record.ActionInput{Version: &c.Version}})
}

// Rollback is `fulgurite rollback`.
type Rollback struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	To     *int   `help:"Version to promote (default: the one promoted before)." placeholder:"VERSION"`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run also works on runs that have ended: the pointer is in the store.
func (c *Rollback) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionRollback, Reason: c.Reason, Input: record.ActionInput{Version: c.To}})
}

// Pin is `fulgurite pin`.
type Pin struct {
	Run_    string `arg:"" name:"run" help:"Name of the run."`
	Version int    `arg:"" help:"Version to promote and hold."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover   mover  `embed:""`
}

// Run promotes the version and keeps the run from promoting another one.
func (c *Pin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionPin, Reason: c.Reason, Input: record.ActionInput{Version: &c.Version}})
}

// Unpin is `fulgurite unpin`.
type Unpin struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run lets the run promote again.
func (c *Unpin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionUnpin, Reason: c.Reason})
}

func (m mover) move(ctx context.Context, s *state.Flags, t *terminal.Terminal, a record.Action) error {
	records, err := s.OpenRecords(ctx, t, m.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	a.ID, a.By = operator.NewID(), cmp.Or(m.By, state.Person())
	a, err = operator.Operator{Store: records.Store}.Act(ctx, a)
	if errors.Is(err, operator.ErrRefused) {
		return terminal.Usagef("run %s: %s", a.Run, a.Result.Message)
	}
	if err == nil {
		t.Printf("%s\n", s.Place().Complete(a.Result.Message))
	}
	return err
}
