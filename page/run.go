package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/decisions"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/specs"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// eventsShown is how many decisions and moves of the pointer the page of a run shows, and
// stepsShown how many steps, the newest ones in each case.
const (
	eventsShown = 8
	stepsShown  = 10
)

// runBody is the page of a run.
type runBody struct {
	runRow
	Failure  record.Failure
	Doubt    string
	Offer    actions.Offer
	Workflow string // its page in Temporal's Web UI
	Account  *report.Report
	// Learns says that the run's steps are made of conversations.
	Learns    bool
	Uncounted string // why there is no account
	// Result is the evaluation of a run that only evaluates; Hardest are the tasks of it that
	// were passed least. Such a run has no steps and no curves.
	Result  *evaluated
	Hardest []groupRow
	Model   string // that is evaluated, if it is not the run's own
	// Search is the search of a run that looks for better prompts. Such a run has no steps.
	Search  *searchBody
	Figures []figure.Drawn
	Flat    []string // the titles of curves that are zero all along
	// Warning says that the last steps taught nothing, and why that may be.
	Warning string
	Steps   []stepRow
	Before  *record.Evaluation
	After   *record.Evaluation
	Changed string // the page that compares Before and After task by task
	// Tested are the words after the number of After's version, if it is of one of several
	// policies. Its attempts sampled from what was promoted of all.
	Tested  string
	Events  []decisions.Event
	Earlier bool // there are events that are not shown
	Range   curves.Span
	Again   bool // something is still being counted
	Spec    format.Clipped
	Others  []string // runs to compare it with
	// Trains is the expression for the names of the agents whose calls alone are trained, or
	// "" if all are.
	Trains string
	// Policies are the names of the policies that are trained, and Frozen those of the
	// others; nil if the run has one policy.
	Policies, Frozen []string
}

func (s *Server) run(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	b := runBody{Failure: run.Failure()}
	b.Failure.Error = s.Place.Complete(b.Failure.Error)
	if b.runRow, err = s.runRow(ctx, run); err != nil {
		return view{}, err
	}
	b.Notes = stopNote(run) // the page has room for each of the others
	state, doubt := s.state(ctx, run)
	b.Doubt = doubt
	if state != nil {
		b.Notes = s.obstacles(ctx, run, *state)
	}
	sp := specOf(run)
	if sp.Evaluation.Only == "" {
		b.Trains = sp.Credit.TrainAgents
	}
	b.Policies = sp.TrainedPolicies()
	for _, name := range sp.PolicyNames() {
		if sp.Policies[name].Frozen {
			b.Frozen = append(b.Frozen, name)
		}
	}
	b.Offer = s.offer(ctx, run, b.runRow, state)
	if s.Live != nil {
		b.Workflow = s.Live.WorkflowURL(run.WorkflowID)
	}
	switch {
	case run.Status == record.Refused:
	case sp.Evaluation.Only != "":
		if err := s.resultOf(ctx, run, sp, &b); err != nil {
			return view{}, err
		}
	case b.Searches:
		if err := s.foundBy(ctx, run, &b); err != nil {
			return view{}, err
		}
	default:
		if err := s.accountOf(r, run, &b); err != nil {
			return view{}, err
		}
	}
	if b.Others, err = s.others(ctx, run); err != nil {
		return view{}, err
	}
	text, err := specs.Text(run.Spec)
	if err != nil {
		text = "its spec can't be read: " + err.Error()
	}
	b.Spec = format.Clip(text, format.MaxOfSpec)
	v := runView("run", run, "Overview")
	v.Body = b
	return v, nil
}

// othersShown is how many runs the page of a run offers to compare it with.
const othersShown = 20

// others returns the newest other runs, those with the same tasks first, because only these
// can be compared task by task.
func (s *Server) others(ctx context.Context, run record.Run) ([]string, error) {
	if run.Status == record.Refused {
		return nil, nil
	}
	latest, err := s.Records.LatestRuns(ctx, 0, othersShown+1)
	if err != nil {
		return nil, err
	}
	latest = slices.DeleteFunc(latest, func(one record.Run) bool { return one.Name == run.Name || one.Status == record.Refused })
	slices.SortStableFunc(latest, func(a, b record.Run) int {
		return cmp.Compare(len(otherTasks([]record.Run{run, a})), len(otherTasks([]record.Run{run, b})))
	})
	var out []string
	for _, one := range latest[:min(len(latest), othersShown)] {
		out = append(out, one.Name)
	}
	return out, nil
}

// hardestShown is how many tasks the page of an evaluation shows.
const hardestShown = 20

// resultOf adds the result of a run that only evaluates.
func (s *Server) resultOf(ctx context.Context, run record.Run, sp spec.Spec, b *runBody) error {
	kind := record.Kind(sp.Evaluation.Only)
	trials, err := s.Records.TrialsOfStep(ctx, run.Name, kind, 0)
	if err != nil {
		return err
	}
	if b.Result, err = s.evaluated(ctx, run, record.Evaluation{Policy: promptsearch.PolicyOf(run), EvaluationResult: record.EvaluationResult{Kind: kind}}, trials); err != nil {
		return err
	}
	b.Model = evaluation.ModelOf(sp)
	groups := groupsOf(trials, spread{}, sp)
	slices.SortStableFunc(groups, byDifficulty)
	b.Hardest = groups[:min(len(groups), hardestShown)]
	return nil
}

// accountOf adds the curves, the decisions and the report.
func (s *Server) accountOf(r *http.Request, run record.Run, b *runBody) error {
	ctx := r.Context()
	steps, err := s.history(ctx, run)
	if err != nil {
		return err
	}
	j, err := s.judged(ctx, run)
	if err != nil {
		return err
	}
	b.Learns = specOf(run).FromTraffic()
	account := s.account(ctx, run, b.Step)
	if b.Account = account.Value; account.Err != nil {
		b.Uncounted = account.Err.Error()
	}
	state := fmt.Sprintf("%s %s %d", run.ExecutionID, run.Status, b.Step)
	lags := s.lagging.Of(ctx, run.Name, state, run.Status == record.Running, s.Patience, func() (map[int]float64, error) { return s.lags(s.ctx, run) })
	if lags.Err != nil {
		return lags.Err
	}
	b.Again = account.Making || lags.Making
	b.Range = curves.SpanOf(number(r, "from"), number(r, "to"), b.Step)
	acted, err := s.Records.Actions(ctx, run.Name, curves.MaxMarks)
	if err != nil {
		return err
	}
	latest, err := s.Records.LatestInterruptions(ctx, run.Name, curves.MaxMarks)
	if err != nil {
		return err
	}
	fraction, err := s.fractions(ctx, run)
	if err != nil {
		return err
	}
	set, interrupted := curves.Settings(acted), curves.Interruptions(account.Value, latest)
	// The curves depend only on how many records of each kind there are.
	key := fmt.Sprintf("%s %s %v %d %d %d %d %d %v %v", run.Name, state, b.Range, len(steps), len(lags.Value), len(j.evaluations), len(j.moves), len(j.decisions), interrupted, set)
	shown, err := s.drawn.Of(ctx, key, func(context.Context) (drawn, error) {
		marks := slices.Concat(curves.Decided(j.moves, j.decisions), interrupted, set)
		data := s.curveData(run, b.Range, steps, j.evaluations)
		data.Fractions = fraction
		data.Lags, data.Marks = lags.Value, b.Range.Marks(marks)
		rest, flat := curves.Flat(curves.Of(data))
		rest = slices.DeleteFunc(rest, figure.Figure.Empty) // nothing of it is on record
		figures, err := figure.Draw(rest)
		return drawn{figures, flat}, err
	})
	if err != nil {
		return err
	}
	b.Figures, b.Flat = shown.figures, shown.flat
	b.judge(j)
	b.Warning = record.UntaughtBy(steps).Text()
	b.Steps = stepRows(run, steps[max(0, len(steps)-stepsShown):])
	for i := range b.Steps {
		b.Steps[i].Lag = lagOf(lags.Value, b.Steps[i].Step.Step)
	}
	return nil
}

// judge adds what was decided about the versions, and the results on the test split.
func (b *runBody) judge(j judged) {
	moves, decided := j.moves[max(0, len(j.moves)-newest):], j.decisions[max(0, len(j.decisions)-newest):]
	b.Events = decisions.Events(moves, decided)
	if len(b.Events) > eventsShown {
		b.Events, b.Earlier = b.Events[:eventsShown], true
	}
	if b.Before, b.After = tested(j.evaluations); b.After != nil {
		b.Changed = changePath(*b.Before, *b.After)
		b.Tested = ofPolicy(b.After.Policy)
	}
}

// foundBy adds what a search for better prompts has found.
func (s *Server) foundBy(ctx context.Context, run record.Run, b *runBody) error {
	j, err := s.judged(ctx, run)
	if err != nil {
		return err
	}
	b.judge(j)
	b.Search, err = s.searchBody(ctx, run)
	return err
}

// drawn are the figures of a run, and the titles of those that would be zero all along.
type drawn struct {
	figures []figure.Drawn
	flat    []string
}

// curveData returns the records for the curves of a part of a run.
func (s *Server) curveData(run record.Run, part curves.Span, steps []record.Step, evaluations []record.Evaluation) curves.Data {
	d := curves.Data{Steps: part.Steps(steps), Evaluations: part.Evaluations(evaluations), Before: run.Created, Policies: specOf(run).TrainedPolicies(), Conversations: specOf(run).FromTraffic()}
	if len(d.Steps) > 0 {
		if at, _ := slices.BinarySearchFunc(steps, d.Steps[0].Step, func(one record.Step, step int) int { return one.Step - step }); at > 0 {
			d.Before = steps[at-1].At
		}
	}
	return d
}

// tested returns the first and the last evaluation on the test split.
func tested(all []record.Evaluation) (before, after *record.Evaluation) {
	for _, e := range all {
		if e.Kind != record.Test {
			continue
		}
		if before == nil {
			before = &e
		} else {
			after = &e
		}
	}
	return before, after
}

// stepRow is a finished step in a list.
type stepRow struct {
	record.Step
	Path     string
	Reward   *float64
	Spread   *float64
	Flat     *float64 // groups that taught nothing
	Entropy  *float64
	Gradient *float64
	Tokens   *float64
	Lag      *float64
}

// stepRows returns the rows of steps, the newest first.
func stepRows(run record.Run, steps []record.Step) []stepRow {
	var out []stepRow
	for _, s := range slices.Backward(steps) {
		of := func(key string) *float64 {
			if v, ok := s.Metrics[key]; ok {
				return &v
			}
			return nil
		}
		var reward *float64
		if v, ok := s.Reward(); ok {
			reward = &v
		}
		out = append(out, stepRow{
			Step: s, Path: stepPath(run.Name, record.Train, s.Step), Reward: reward, Spread: of("reward/std"),
			Flat: of("batch/zero_variance_groups"), Entropy: of("train/entropy"), Gradient: of("train/gradient_norm"), Tokens: of("batch/trained_tokens"),
		})
	}
	return out
}

// offer lists what the reader can do to a run.
func (s *Server) offer(ctx context.Context, run record.Run, row runRow, state *State) actions.Offer {
	if !access.Of(ctx).May(access.Operate) {
		return actions.Offer{}
	}
	only := specOf(run).Evaluation.Only != ""
	// A run that only evaluates has one version, which nothing can take the place of.
	now := actions.State{Pending: -1, Promoted: row.Promoted != nil && !only, Pinned: row.Pinned, Only: only}
	if state != nil {
		now.Paused, now.Stopping, now.Pending = state.Paused, state.Stop != nil, state.Pending
	}
	offer := s.actions.Offer(ctx, run, now)
	if !searches(run) {
		return offer
	}
	// A search has no numbers to set, and no steps to add once it has come to its end.
	names := []record.ActionName{
		record.ActionPause, record.ActionResume, record.ActionStop, actions.StopNow, record.ActionApprove, record.ActionReject,
		record.ActionPromote, record.ActionRollback, record.ActionPin, record.ActionUnpin,
	}
	if run.CanRetry() {
		names = append(names, record.ActionRetry)
	}
	return offer.About(names...)
}

const (
	// maxFollowing is how many pages may follow runs at once.
	maxFollowing = 64
	// stateEvery is how long an answer of Temporal is used, and stateTimeout how long one
	// is waited for: it is asked about many workflows at once.
	stateEvery   = time.Second / 2
	stateTimeout = 2 * time.Second
	// quietPolls is the number of polls without news after which a comment is sent to keep
	// the connection open.
	quietPolls = 15
	// renewEvery is the number of milliseconds after which the lists of runs and of
	// processes are loaded again while a reader has them open.
	renewEvery = 2000
)

// stateAnswer is Temporal's answer about a run, or the reason why there is none.
type stateAnswer struct {
	State
	err error
}

// state asks Temporal what a run under way is doing. It returns nil if Temporal can't be
// asked.
func (s *Server) state(ctx context.Context, run record.Run) (*State, string) {
	if s.Live == nil || run.Status != record.Running {
		return nil, ""
	}
	answer, err := s.states.Of(ctx, moment(run.Name), func(ctx context.Context) (stateAnswer, error) {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		state, err := s.Live.State(ctx, run.Name)
		return stateAnswer{state, err}, nil // an error is an answer, too, until the next time
	})
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return nil, format.Clip(err.Error(), format.MaxOfMessage).Text
	}
	return &answer.State, ""
}

// liveRuns corrects the status of runs from Temporal, if Temporal answers in time.
func (s *Server) liveRuns(ctx context.Context, runs []record.Run) ([]record.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	corrected, err := s.Live.Runs(ctx, runs)
	if len(corrected) != len(runs) {
		return runs, err
	}
	return corrected, err
}

// liveRun does what liveRuns does, for one run. Its answer is shared by all who ask
// within the same moment.
func (s *Server) liveRun(ctx context.Context, run record.Run) (record.Run, error) {
	key := fmt.Sprintf("%s %s %s", moment(run.Name), run.Status, run.Finished)
	return s.lives.Of(ctx, key, func(ctx context.Context) (record.Run, error) {
		return s.liveRunNow(ctx, run), nil
	})
}

// liveRunNow corrects the status of a run. If Temporal does not answer, the status is the
// recorded one.
func (s *Server) liveRunNow(ctx context.Context, run record.Run) record.Run {
	runs, _ := s.liveRuns(ctx, []record.Run{run})
	return runs[0]
}

// moment returns the key of a question to Temporal about a run. The key changes after
// stateEvery.
func moment(run string) string {
	return run + " " + strconv.FormatInt(time.Now().UnixNano()/int64(stateEvery), 10)
}

// live sends an event whenever a run has something new to show, until it ends, the
// reader leaves or may not read any more.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.following <- struct{}{}:
		defer func() { <-s.following }()
	default:
		http.Error(w, "too many pages follow runs: close some", http.StatusServiceUnavailable)
		return
	}
	if !s.begin() {
		http.Error(w, "the page is being closed", http.StatusServiceUnavailable)
		return
	}
	defer s.work.Done()
	last, err := s.progress(r)
	if errors.Is(err, record.ErrNotFound) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	send := func(text string) bool {
		_, err := fmt.Fprint(w, text)
		return err == nil && c.Flush() == nil
	}
	if !send("retry: 3000\n\nevent: begin\ndata: " + last + "\n\n") {
		return
	}
	tick := time.NewTicker(s.Poll)
	defer tick.Stop()
	for quiet := 0; ; quiet++ {
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		now, err := s.progress(r)
		news := ": still here\n\n"
		switch {
		case err == nil && now != last:
			last, news = now, "event: change\ndata: "+now+"\n\n"
		case quiet%quietPolls != quietPolls-1: // the store may be back at the next look
			continue
		}
		if _, err := s.Guard.Who(r); err != nil { // the token was revoked or has expired
			return
		}
		if !send(news) {
			return
		}
	}
}

// progress describes how far a run has come, as a text that changes whenever there is
// something new to show. Its cost does not depend on the length of the run.
func (s *Server) progress(r *http.Request) (string, error) {
	// All readers who follow the same run share one look.
	key := fmt.Sprintf("%s %d", r.PathValue("run"), s.now())
	return s.looks.Of(r.Context(), key, func(ctx context.Context) (string, error) { return s.look(ctx, r) })
}

func (s *Server) look(ctx context.Context, r *http.Request) (string, error) {
	run, err := s.find(r.WithContext(ctx))
	if err != nil {
		return "", err
	}
	step, err := s.lastStep(ctx, run.Name)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s %d", run.Status, step)
	for _, policy := range pointersOf(run) {
		move, err := s.Records.Promoted(ctx, run.Name, policy)
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			return "", err
		}
		text += fmt.Sprintf(" %q", move.DecisionID)
	}
	if searches(run) {
		search, err := s.searchState(ctx, run)
		if err != nil {
			return "", err
		}
		text += " " + search
	}
	if state, _ := s.state(ctx, run); state != nil {
		text += fmt.Sprintf(" %s %s %d %d %v %d %d", state.Phase, format.Clean(state.Subject), state.Done, state.Total, state.Paused, state.Pending, len(state.Waits))
	}
	return format.FirstLine(text), nil
}

// lastStep returns the number of the newest finished step, or 0 if there is none.
func (s *Server) lastStep(ctx context.Context, run string) (int, error) {
	step, err := s.Records.LastStep(ctx, run, model.DefaultPolicy)
	if errors.Is(err, record.ErrNotFound) {
		return 0, nil
	}
	return step.Step, err
}
