package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/faults"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// fleetRuns is the number of runs whose interruptions are shown, and fleetFaults the
	// number of faults per run.
	fleetRuns   = 6
	fleetLooks  = 100 // newest runs, of which those under way come first
	fleetFaults = 40
	// fleetTimeout is how long the page waits for answers of other processes.
	fleetTimeout = 2 * time.Second
)

// Fleet describes the processes around a store.
type Fleet interface {
	// Queues returns the queues that the runs under way need, with the workers that poll
	// them.
	Queues(ctx context.Context) ([]Queue, error)
	// Gateway returns the address below which a gateway serves versions, ending in "/v1".
	// If there is none, the error says why.
	Gateway(ctx context.Context) (string, error)
	// Here returns the versions that the page's own process has in memory. The second
	// result is false if this process samples nothing.
	Here() ([]model.VersionID, bool)
	// Loaded returns the versions that the sampler of a lease has in memory.
	Loaded(ctx context.Context, sampler record.Lease) ([]model.VersionID, error)
}

// Queue is a task queue in Temporal.
type Queue struct {
	Name    string
	Kind    string // "workflow" or "activity"
	Backlog int64  // number of waiting tasks, or -1 if not known
	Pollers []Poller
}

// Poller is a worker that asks for tasks.
type Poller struct {
	Identity string // process@host, as a rule
	Last     time.Time
}

// fleetBody is the page of the processes.
type fleetBody struct {
	Queues  []Queue
	Doubt   string // why Temporal says nothing
	Workers []workerRow
	Leases  []leaseRow
	Samples bool     // true if the page's own process samples
	Here    []string // versions that it has in memory
	Lanes   figure.Lanes
	Faults  []faultRow
	Number  int // number of attempts that the faults cut off
	Median  time.Duration
	Longest time.Duration
	Runs    []link
}

// workerRow is a process that polls queues.
type workerRow struct {
	Identity string
	Queues   string
	Last     time.Time
}

// leaseRow is a process that others find by its lease.
type leaseRow struct {
	record.Lease
	Left   time.Duration
	Loaded []string // versions
	Doubt  string
}

// faultRow is a fault that cut attempts off.
type faultRow struct {
	faults.Fault
	Run   link
	Pairs []cutOff
}

// cutOff is an attempt, and the one that replaced it.
type cutOff struct {
	Address    record.Address
	Path, Next string
	Lost       time.Duration // from its last sign of life until the next attempt began
}

func (s *Server) fleet(r *http.Request) (view, error) {
	ctx, cancel := context.WithTimeout(r.Context(), fleetTimeout)
	defer cancel()
	var b fleetBody
	if s.Fleet == nil {
		b.Doubt = "nothing runs it: this page shows a directory whose stack has ended"
	} else if queues, err := s.Fleet.Queues(ctx); err != nil {
		b.Doubt = format.FirstLine(err.Error())
	} else {
		b.queues(queues)
	}
	if s.Fleet != nil {
		var here []model.VersionID
		here, b.Samples = s.Fleet.Here()
		b.Here = names(here)
	}
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		leases, err := s.Records.Leases(r.Context(), role)
		if err != nil {
			return view{}, err
		}
		for _, l := range leases[:min(len(leases), groupsPerPage)] {
			b.Leases = append(b.Leases, s.leaseRow(ctx, l))
		}
	}
	if err := s.faults(r.Context(), &b); err != nil {
		return view{}, err
	}
	return view{template: "fleet", Title: "Fleet", Crumbs: []link{{Text: "Fleet"}}, Body: b, Section: "/fleet", Every: renewEvery}, nil
}

// queues adds the queues, and the workers with the queues that they poll.
func (b *fleetBody) queues(all []Queue) {
	b.Queues = all
	byWorker := map[string]*workerRow{}
	for _, q := range all {
		for _, p := range q.Pollers {
			w, ok := byWorker[p.Identity]
			if !ok {
				w = &workerRow{Identity: format.FirstLine(p.Identity)}
				byWorker[p.Identity] = w
			}
			if !strings.Contains(w.Queues, q.Name) {
				w.Queues = strings.TrimPrefix(w.Queues+", "+format.FirstLine(q.Name), ", ")
			}
			if p.Last.After(w.Last) {
				w.Last = p.Last
			}
		}
	}
	for _, w := range byWorker {
		b.Workers = append(b.Workers, *w)
	}
	slices.SortFunc(b.Workers, func(x, y workerRow) int { return cmp.Compare(x.Identity, y.Identity) })
	b.Workers = b.Workers[:min(len(b.Workers), groupsPerPage)]
}

func (s *Server) leaseRow(ctx context.Context, l record.Lease) leaseRow {
	row := leaseRow{Lease: l, Left: time.Until(l.Expires)}
	row.Name, row.URL = format.FirstLine(l.Name), format.FirstLine(l.URL)
	if l.Role != record.Sampler || s.Fleet == nil {
		return row
	}
	loaded, err := s.Fleet.Loaded(ctx, l)
	if err != nil {
		row.Doubt = format.FirstLine(err.Error())
	}
	row.Loaded = names(loaded)
	return row
}

// names returns the names of the first versions.
func names(versions []model.VersionID) (out []string) {
	for _, v := range versions[:min(len(versions), maxMessages)] {
		out = append(out, format.FirstLine(v.String()))
	}
	return out
}

// faults adds the faults that interrupted the newest runs.
func (s *Server) faults(ctx context.Context, b *fleetBody) error {
	runs, err := s.Records.LatestRuns(ctx, 0, fleetLooks)
	if err != nil {
		return err
	}
	ended := func(run record.Run) int {
		if run.Status == record.Running {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(runs, func(x, y record.Run) int { return ended(x) - ended(y) })
	b.Lanes = figure.Lanes{Title: "Faults that cut attempts off, by run", Clock: true}
	var took []time.Duration
	for _, run := range runs[:min(len(runs), fleetRuns)] {
		at := link{Text: run.Name, Path: runPath(run.Name)}
		b.Runs = append(b.Runs, at)
		all, err := s.Records.LatestInterruptions(ctx, run.Name, fleetFaults)
		if err != nil {
			return err
		}
		lane := figure.Lane{Name: run.Name}
		for _, f := range faults.Group(all) {
			row := faultRow{Fault: f, Run: at}
			for _, i := range f.Attempts {
				next := i.Address
				next.Attempt++
				row.Pairs = append(row.Pairs, cutOff{i.Address, attemptPath(i.Address), attemptPath(next), max(0, i.Again.Sub(i.Last))})
			}
			took, b.Faults, b.Number = append(took, f.Took()), append(b.Faults, row), b.Number+len(f.Attempts)
			lane.Bars = append(lane.Bars, figure.Bar{From: f.From, To: f.To, Class: "interrupted", Path: row.Pairs[0].Path, Text: fmt.Sprintf("%s: %s: %s, recovered after %s", run.Name, readable.Count(len(f.Attempts), "attempt"), f.Text, format.Took(f.Took()))})
		}
		if len(lane.Bars) > 0 {
			b.Lanes.Rows = append(b.Lanes.Rows, lane)
		}
	}
	slices.SortStableFunc(b.Faults, func(x, y faultRow) int { return y.From.Compare(x.From) })
	b.Faults = b.Faults[:min(len(b.Faults), fleetFaults)]
	if len(took) > 0 {
		slices.Sort(took)
		b.Median, b.Longest = took[len(took)/2], took[len(took)-1]
	}
	return nil
}
