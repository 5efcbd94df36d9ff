package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/cache"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
)

// newest limits how far back the page looks for new records: to the last 64 decisions,
// and to evaluations of the last 64 versions.
const newest = 64

// history is the record of the finished steps of a run. Steps never change, and decisions
// and evaluations are only added, so each is read once.
type history struct {
	mu    sync.Mutex
	steps []record.Step
	lags  map[int]float64
	// lagged is the last step whose lag was read.
	lagged int

	answers int // of the run's search, which were counted

	judged map[string]judged // what was read of each policy with evaluations and decisions
}

// judged has the evaluations and decisions about the versions of a run, of all policies if each
// is promoted alone.
type judged struct {
	evaluations []record.Evaluation // by version
	moves       []record.Promotion  // in order
	decisions   []record.Decision   // in order
}

func (s *Server) historyOf(ctx context.Context, run record.Run) (*history, error) {
	return s.histories.Of(ctx, run.Name+" "+run.ExecutionID+" "+string(run.Status), func(context.Context) (*history, error) {
		return &history{lags: map[int]float64{}, judged: map[string]judged{}}, nil
	})
}

// fractions reports whether all rewards of a run lie between 0 and 1, as far as its records
// and its spec say.
func (s *Server) fractions(ctx context.Context, run record.Run) (bool, error) {
	steps, err := s.history(ctx, run)
	return curves.Fractions(steps, specOf(run)), err
}

// history reads the new steps of a run and returns all of them. The caller must not
// change them.
func (s *Server) history(ctx context.Context, run record.Run) ([]record.Step, error) {
	h, err := s.historyOf(ctx, run)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := 0
	if n := len(h.steps); n > 0 {
		last = h.steps[n-1].Step
	}
	fresh, err := s.Records.StepsAfter(ctx, run.Name, model.DefaultPolicy, last)
	if err != nil {
		return nil, err
	}
	h.steps = append(h.steps[:len(h.steps):len(h.steps)], fresh...)
	return h.steps, nil
}

// lags returns the lags of the finished steps of a run.
func (s *Server) lags(ctx context.Context, run record.Run) (map[int]float64, error) {
	steps, err := s.history(ctx, run)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	h, err := s.historyOf(ctx, run)
	if err != nil {
		return nil, err
	}
	last := steps[len(steps)-1].Step
	h.mu.Lock()
	known, from := h.lags, h.lagged
	h.mu.Unlock()
	if from >= last {
		return known, nil
	}
	// The lock is not held here, so a page that needs only the steps does not wait while
	// the attempts of all steps are read.
	fresh, err := s.Records.Lags(ctx, run.Name, model.DefaultPolicy, from)
	if err != nil {
		return nil, err
	}
	all := make(map[int]float64, len(known)+len(fresh)) // others may read the old one
	for step, lag := range known {
		all[step] = lag
	}
	for step, lag := range fresh {
		if step <= last {
			all[step] = lag
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lags, h.lagged = all, last
	return all, nil
}

// lagsOf returns the lags of a run's finished steps, or those that were counted last.
// Counting reads all attempts of the run, so it happens in the background and the page
// does not wait for it.
func (s *Server) lagsOf(ctx context.Context, run record.Run, steps []record.Step) (cache.Answer[map[int]float64], error) {
	last := 0
	if n := len(steps); n > 0 {
		last = steps[n-1].Step
	}
	state := fmt.Sprintf("%s %s %d", run.ExecutionID, run.Status, last)
	lags := s.lagging.Of(ctx, run.Name, state, run.Status == record.Running, s.Patience, func() (map[int]float64, error) { return s.lags(s.ctx, run) })
	return lags, lags.Err
}

// lagOf returns the lag of a step, or nil if it is not known.
func lagOf(lags map[int]float64, step int) *float64 {
	if lag, ok := lags[step]; ok {
		return &lag
	}
	return nil
}

// judged reads the new evaluations and decisions of a run and returns all of them. The
// caller must not change them.
func (s *Server) judged(ctx context.Context, run record.Run) (judged, error) {
	h, err := s.historyOf(ctx, run)
	if err != nil {
		return judged{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []judged
	for _, policy := range judgedPolicies(run) {
		known, ok := h.judged[policy]
		if ok {
			known, err = s.readNewest(ctx, run.Name, policy, known)
		} else {
			known, err = s.readJudged(ctx, run.Name, policy)
		}
		if err != nil {
			return judged{}, err
		}
		h.judged[policy] = known
		all = append(all, known)
	}
	return together(all), nil
}

// together returns what is on record about the versions of several policies as one.
func together(all []judged) judged {
	if len(all) == 1 {
		return all[0]
	}
	var out judged
	for _, one := range all {
		out.evaluations, out.moves, out.decisions = append(out.evaluations, one.evaluations...), append(out.moves, one.moves...), append(out.decisions, one.decisions...)
	}
	slices.SortStableFunc(out.evaluations, func(a, b record.Evaluation) int { return cmp.Compare(a.Version, b.Version) })
	slices.SortStableFunc(out.moves, func(a, b record.Promotion) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(out.decisions, func(a, b record.Decision) int { return a.At.Compare(b.At) })
	return out
}

func (s *Server) readJudged(ctx context.Context, run, policy string) (j judged, err error) {
	if j.evaluations, err = s.Records.EvaluationsBetween(ctx, run, policy, 0, maxVersions); err != nil {
		return j, err
	}
	if j.moves, err = s.Records.Promotions(ctx, run, policy); err != nil {
		return j, err
	}
	j.decisions, err = s.Records.Decisions(ctx, run, policy)
	return j, err
}

// maxVersions is above the number of every version.
const maxVersions = 1 << 40

// readNewest adds what is new to what is known about the versions of a policy.
func (s *Server) readNewest(ctx context.Context, run, policy string, known judged) (judged, error) {
	from := 0
	if n := len(known.evaluations); n > 0 {
		from = max(0, known.evaluations[n-1].Version-newest)
	}
	evaluations, err := s.Records.EvaluationsBetween(ctx, run, policy, from, maxVersions)
	if err != nil {
		return known, err
	}
	moves, err := s.Records.LatestPromotions(ctx, run, policy, newest)
	if err != nil {
		return known, err
	}
	decisions, err := s.Records.LatestDecisions(ctx, run, policy, newest)
	if err != nil {
		return known, err
	}
	keep, _ := slices.BinarySearchFunc(known.evaluations, from, func(e record.Evaluation, version int) int { return cmp.Compare(e.Version, version) })
	known.evaluations = append(known.evaluations[:keep:keep], evaluations...)
	var moved, decided bool
	known.moves, moved = withNewest(known.moves, moves, func(p record.Promotion) string { return p.DecisionID })
	known.decisions, decided = withNewest(known.decisions, decisions, func(d record.Decision) string { return d.DecisionID })
	if !moved || !decided {
		return s.readJudged(ctx, run, policy)
	}
	return known, nil
}

// withNewest adds those of the last records to the known ones that are new. In last, the
// newest record comes first. The second result is false if records between the two may be
// missing.
func withNewest[R any](known, last []R, id func(R) string) ([]R, bool) {
	have := map[string]bool{}
	for _, r := range known[max(0, len(known)-2*newest):] {
		have[id(r)] = true
	}
	out := known[:len(known):len(known)]
	for _, r := range slices.Backward(last) {
		if !have[id(r)] {
			out = append(out, r)
		}
	}
	return out, len(out)-len(known) < newest
}

// maxAccounts is how many reports are kept.
const maxAccounts = 16

// account returns the report on a run in a state, or the previous one. A report reads all
// batches of its run, so it is made in the background and the page does not wait for it.
func (s *Server) account(ctx context.Context, run record.Run, step int) cache.Answer[*report.Report] {
	state := fmt.Sprintf("%s %s %v %d", run.ExecutionID, run.Status, run.Idle, step)
	return s.accounts.Of(ctx, run.Name, state, run.Status == record.Running, s.Patience, func() (*report.Report, error) {
		r, err := report.Of(s.ctx, fixedRun{s.Records, run}, s.Blobs, run.Name, model.DefaultPolicy)
		return &r, err
	})
}

// fixedRun are records of a run whose row has been read, and corrected.
type fixedRun struct {
	Records
	run record.Run
}

func (f fixedRun) Run(context.Context, string) (record.Run, error) { return f.run, nil }
