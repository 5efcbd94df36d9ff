package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/user"

	"github.com/fulgurite/fulgurite/internal/pointer"
	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/record"
)

// hand is what every command asks that moves the promoted pointer.
type hand struct {
	By      string      `help:"Who does it (default: user@host)." placeholder:"NAME"`
	Records recordFlags `embed:""`
}

type rollbackCommand struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	To     *int   `help:"Version to promote (default: the one promoted before)." placeholder:"VERSION"`
	Reason string `help:"Why; it stays on record." required:"" placeholder:"TEXT"`
	Hand   hand   `embed:""`
}

// Run also works on runs that have ended: the pointer is in the store.
func (c *rollbackCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Hand.move(ctx, s, t, c.Run_, func(h pointer.Hand) (record.Promotion, error) { return h.Rollback(ctx, c.To, c.Reason) })
}

type pinCommand struct {
	Run_    string `arg:"" name:"run" help:"Name of the run."`
	Version int    `arg:"" help:"Version to promote and hold."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Hand    hand   `embed:""`
}

func (c *pinCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Hand.move(ctx, s, t, c.Run_, func(h pointer.Hand) (record.Promotion, error) { return h.Pin(ctx, c.Version, c.Reason) })
}

type unpinCommand struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Hand   hand   `embed:""`
}

func (c *unpinCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Hand.move(ctx, s, t, c.Run_, func(h pointer.Hand) (record.Promotion, error) { return h.Unpin(ctx, c.Reason) })
}

func (h hand) move(ctx context.Context, s *shared, t *terminal, run string, move func(pointer.Hand) (record.Promotion, error)) error {
	db, _, err := s.openRecords(ctx, t, h.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := move(pointer.Hand{Store: db, Run: run, Policy: mainPolicy, By: cmp.Or(h.By, person())})
	if errors.Is(err, pointer.ErrRefused) {
		return usageError{err}
	}
	if err == nil {
		t.printf("%s\n", report.Move(p))
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
