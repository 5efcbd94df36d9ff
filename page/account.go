package page

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// accountShare is the part of the time that is spent on accounts of a run that goes
	// on: after one that took a second the next begins twenty seconds later.
	accountShare = 20
	// mostAccounts are kept.
	mostAccounts = 16
)

// accounts are the latest ones of runs. An account reads all batches of its run, so it is
// made once for each state of a run, beside the page that asks for it.
type accounts struct {
	mu      sync.Mutex
	entries map[string]*account // by run
	order   []string
}

// account is what a run was found to be at one time.
type account struct {
	state  string // of the run, when it was begun
	making chan struct{}
	report *report.Report
	err    error
	took   time.Duration
	made   time.Time
}

// account returns the account of a run in a state, or the last one before; nil if there is
// none yet.
func (s *Server) account(ctx context.Context, run record.Run, step int) (*report.Report, error) {
	state := fmt.Sprintf("%s %s %d", run.ExecutionID, run.Status, step)
	a := &s.accounts
	a.mu.Lock()
	entry, ok := a.entries[run.Name]
	if !ok {
		entry = &account{}
		a.entries[run.Name] = entry
		if a.order = append(a.order, run.Name); len(a.order) > mostAccounts {
			delete(a.entries, a.order[0])
			a.order = a.order[1:]
		}
	}
	due := entry.state != state && (entry.made.IsZero() || run.Status != record.Running || time.Since(entry.made) > accountShare*entry.took)
	if due && entry.making == nil && s.begin() {
		entry.making, entry.state = make(chan struct{}), state
		go s.makeAccount(entry, run)
	}
	making := entry.making
	a.mu.Unlock()
	if making != nil {
		patience := time.NewTimer(s.Patience)
		defer patience.Stop()
		select {
		case <-making:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return entry.report, entry.err
}

func (s *Server) makeAccount(entry *account, run record.Run) {
	defer s.work.Done()
	began := time.Now()
	r, err := report.Of(s.ctx, fixedRun{s.Records, run}, s.Blobs, run.Name, model.DefaultPolicy)
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	close(entry.making)
	entry.making, entry.made, entry.took, entry.err = nil, time.Now(), time.Since(began), err
	if err != nil {
		entry.state = "" // it is tried again
		return
	}
	entry.report = &r
}

// fixedRun are records of a run whose row has been read, and corrected.
type fixedRun struct {
	Records
	run record.Run
}

func (f fixedRun) Run(context.Context, string) (record.Run, error) { return f.run, nil }
