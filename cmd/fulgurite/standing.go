package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/internal/runstate"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// standingWithin is how long Temporal may take to say how runs stand, before what is on
// record has to do.
const standingWithin = 10 * time.Second

// standing is a run as it stands, and Temporal if it could be asked. doubt says why it
// could not be, of a run that the record has as running: one that ended is left to
// the record.
func (s *shared) standing(ctx context.Context, t *terminal, r record.Run) (run record.Run, c client.Client, doubt string) {
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	c, err := s.dial(ctx, t)
	if err != nil {
		if r.Status != record.Running {
			return r, nil, ""
		}
		return r, nil, fmt.Sprintf("nothing runs it at the moment: %v", err)
	}
	if run, err = runstate.Of(ctx, c, r); err != nil && r.Status == record.Running {
		doubt = fmt.Sprintf("Temporal does not say whether it still runs: %v", err)
	}
	return run, c, doubt
}

// allStanding are runs as they stand, with the reason if Temporal could not be asked
// about those that are under way.
func (s *shared) allStanding(ctx context.Context, t *terminal, runs []record.Run) ([]record.Run, string) {
	going := false
	for _, r := range runs {
		going = going || r.Status == record.Running
	}
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	c, err := s.dial(ctx, t)
	if err == nil {
		defer c.Close()
		runs, err = runstate.All(ctx, c, runs)
	}
	if err == nil || !going {
		return runs, ""
	}
	return runs, fmt.Sprintf("what is running is so by the record alone: %v", err)
}

// asItStands is a store whose runs are as Temporal has them.
type asItStands struct {
	*store.Store
	s *shared
	t *terminal
}

// Run is the run of that name as it stands.
func (a asItStands) Run(ctx context.Context, name string) (record.Run, error) {
	r, err := a.Store.Run(ctx, name)
	if err != nil {
		return r, err
	}
	r, c, _ := a.s.standing(ctx, a.t, r)
	if c != nil {
		c.Close()
	}
	return r, nil
}

// shortLine is the beginning of a text that fits into a table.
func shortLine(text string, most int) string {
	line, rest, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}

// retriable reports whether `fulgurite retry` lets a run go on.
func retriable(s record.Status) bool {
	switch s {
	case record.Failed, record.Cancelled, record.Terminated, record.TimedOut, record.Refused:
		return true
	}
	return false
}
