package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/trained"
	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// callsPerPage and tokensPerPage limit the size of a page. callsAtOnce is how many
	// calls are read at a time.
	callsPerPage  = 20
	tokensPerPage = 2500
	callsAtOnce   = 10 // in one read
)

// attemptBody is the page of an attempt.
type attemptBody struct {
	record.Attempt
	Here      string // the page itself
	Ending    string // how it ended, or that it runs
	Failed    string // how the agent failed
	Verdict   verdict.Verdict
	Input     format.Clipped // of the task
	Answer    format.Clipped
	Returned  format.Clipped // the result, as much as the head has room for
	Around    []link         // the neighbouring samples and the group
	Blamed    *link          // the call with the smallest advantage, and the largest
	Credited  *link
	Error     format.Clipped
	Took      time.Duration
	Advantage *trained.Mean
	Trained   int
	CutOff    int    // replies that a limit of tokens ended
	Attempts  []link // at the same rollout
	Replaced  bool   // by a later attempt
	Greedy    bool   // made at temperature 0, beside the samples of an evaluation
	Task      string // the page of the group
	Rewards   []record.Reward
	Tools     []record.Span
	MoreTools int
	Spans     []record.Span // of all kinds
	MoreSpans int
	Refusals  []record.Refusal
	Result    format.Clipped
	Stdout    format.Clipped
	Stderr    format.Clipped

	Calls  []callBlock
	Codec  string // why tokens are shown as numbers
	First  int    // number of the first call that is shown, from 1
	Last   int
	Before string // earlier calls
	After  string // later calls, or the rest of this one
	// Credit is the path of the page with other estimators. It is empty if no batch holds
	// the attempt.
	Credit string
	// Lanes are the calls that are shown and the tools that ran, on one time axis.
	Lanes figure.Lanes
	// Overlays are what tokens can be coloured by.
	Overlays []overlay
	// Served is nil unless the attempt is a recorded conversation.
	Served *servedBlock
	// NotDrawn are calls and spans that the axis has no room for.
	NotDrawn int
	// Scale is the largest magnitude of an advantage that is shown.
	Scale float64
}

// overlay is something that tokens can be coloured by.
type overlay struct {
	Name, Text string
	Here       bool // it is what the address asks for, or else the first
}

// overlaysOf returns what tokens can be coloured by, with the one marked that is asked for.
func overlaysOf(asked string) []overlay {
	all := []overlay{
		{Name: "logprob", Text: "log-probability"}, {Name: "entropy", Text: "entropy"}, {Name: "difference", Text: "trainer − sampler"},
		{Name: "advantage", Text: "advantage"}, {Name: "mask", Text: "mask"}, {Name: "version", Text: "version"},
	}
	i := max(0, slices.IndexFunc(all, func(o overlay) bool { return o.Name == asked }))
	all[i].Here = true
	return all
}

func (s *Server) attempt(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	at, err := placeOf(run.Name, r.PathValue("step"), r.PathValue("task"), r.PathValue("sample"), r.PathValue("attempt"))
	if err != nil {
		return view{}, err
	}
	b := attemptBody{
		Task: groupPath(at.RolloutID), Here: attemptPath(at), Greedy: at.Sample >= greedyFrom(specOf(run), at.Kind), Overlays: overlaysOf(r.URL.Query().Get("by")),
	}
	if at.Kind == record.Served {
		if err := s.served(ctx, at, &b); err != nil {
			return view{}, err
		}
	}
	if b.Attempt, err = s.Records.Attempt(ctx, at); err != nil {
		return view{}, err
	}
	if b.Took = b.Ended.Sub(b.Begun); b.Ended.IsZero() {
		b.Took = 0
	}
	if err := s.around(ctx, run, &b); err != nil {
		return view{}, err
	}
	s.judge(ctx, run, &b)
	credit, err := s.creditOf(ctx, &b)
	if err != nil {
		return view{}, err
	}
	if credit != nil {
		b.Advantage, b.Trained = credit.Advantage.Known(), credit.Tokens
	}
	if err := s.conversation(ctx, &b, credit, number(r, "call"), number(r, "token")); err != nil {
		return view{}, err
	}
	if credit != nil {
		b.extremes(credit)
	}
	if b.Served != nil {
		if err := s.judgments(ctx, &b); err != nil {
			return view{}, err
		}
		b.Lanes = figure.Lanes{} // days may lie between two calls
		v := runView("attempt", run, "Conversations", link{Text: "Conversations", Path: conversationsPath(run.Name, nil)}, link{Text: fmt.Sprintf("Conversation %d", at.Task)})
		v.Follow = "" // which is about the run's steps
		v.Body = b
		return v, nil
	}
	v := runView("attempt", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"},
		stepLink(run, at.RolloutID),
		link{Text: "Task " + format.Clip(b.TaskID, format.MaxOfLine).Text, Path: b.Task}, link{Text: fmt.Sprintf("Sample %d, attempt %d", at.Sample, at.Attempt)})
	v.Body = b
	return v, nil
}

// creditOf returns the credit of the attempt's tokens, nil if none was trained. An attempt of a
// step has a page with its credit, too.
func (s *Server) creditOf(ctx context.Context, b *attemptBody) (*trained.Attempt, error) {
	if b.Served != nil {
		return s.servedCredit(ctx, b.Address, b.Served.Policy)
	}
	credit, err := s.tokenCredit(ctx, b.Address)
	if credit != nil {
		b.Credit = attemptPath(b.Address) + "/credit"
	}
	return credit, err
}

// judge says why the attempt got its reward: what the task asked, what was expected, and
// what the agent returned.
func (s *Server) judge(ctx context.Context, run record.Run, b *attemptBody) {
	task, known := s.task(ctx, run, b.Kind, b.TaskID)
	if known {
		b.Input, b.Answer = format.Clip(task.Input, format.MaxOfResult), format.Clip(task.Answer, format.MaxOfResult)
	}
	b.Returned = format.Clip(b.Attempt.Result, format.MaxOfResult)
	if b.Outcome == record.AgentFailed {
		b.Failed = format.FirstLine(verdict.Failure(b.Failure))
	}
	b.Verdict = verdict.Of(specOf(run).Grader, task, b.Attempt) // of a spec that can't be read the grader is not known
	b.Verdict.Text, b.Verdict.Cause = format.FirstLine(b.Verdict.Text), format.FirstLine(b.Verdict.Cause)
}

// extremes finds the calls with the smallest and the largest advantage. It finds none if
// all calls have the same.
func (b *attemptBody) extremes(credit *trained.Attempt) {
	means := map[int]float64{}
	for seq, c := range credit.Calls {
		if mean := c.Advantage().Known(); mean != nil {
			means[seq] = mean.Value
		}
	}
	var least, most int
	for i, seq := range slices.Sorted(maps.Keys(means)) {
		if i == 0 || means[seq] < means[least] {
			least = seq
		}
		if i == 0 || means[seq] > means[most] {
			most = seq
		}
	}
	to := func(seq int) *link {
		mean, path := means[seq], fmt.Sprintf("?call=%d#call-%d", seq, seq)
		if seq >= b.First-1 && seq < b.Last {
			path = fmt.Sprintf("#call-%d", seq)
		}
		return &link{Text: fmt.Sprintf("call %d, %s", seq, format.Signed(&mean)), Path: path}
	}
	if len(means) < 2 || means[most]-means[least] < 0.0005 { // with three decimals they look the same
		return
	}
	if means[least] < 0 {
		b.Blamed = to(least)
	}
	if means[most] > 0 {
		b.Credited = to(most)
	}
}

// number returns a parameter of a request as a count, or 0 if it is not one.
func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return n
}

// around reads the records about an attempt, except its calls.
func (s *Server) around(ctx context.Context, run record.Run, b *attemptBody) error {
	at := b.Address
	trials, err := s.Records.TrialsOfGroup(ctx, at.Run, at.Kind, at.Step, at.Task)
	if err != nil {
		return err
	}
	b.Around = neighbours(trials, at)
	states := record.StatesOf(trials, run)
	for i, t := range trials {
		if t.RolloutID == at.RolloutID {
			b.Attempts = append(b.Attempts, link{Text: fmt.Sprintf("%d, %s", t.Address.Attempt, words(states[i])), Path: attemptPath(t.Address), Here: t.Address == at})
			b.Replaced = t.Address.Attempt > at.Attempt
		}
		if t.Address == at {
			b.CutOff = t.CutOff
		}
	}
	b.Ending = words(record.StateOf(b.Outcome, b.Replaced, run))
	if b.Rewards, err = s.Records.Rewards(ctx, at); err != nil {
		return err
	}
	if b.Refusals, err = s.Records.Refusals(ctx, at); err != nil {
		return err
	}
	spans, err := s.Records.Spans(ctx, at)
	if err != nil {
		return err
	}
	b.Spans = spans[:min(len(spans), maxSpans)]
	b.MoreSpans = len(spans) - len(b.Spans)
	b.Tools = slices.DeleteFunc(slices.Clone(spans), func(one record.Span) bool { return one.Kind != record.ToolSpan })
	if n := len(b.Tools); n > groupsPerPage {
		b.Tools, b.MoreTools = b.Tools[:groupsPerPage], n-groupsPerPage
	}
	output, err := s.Records.Output(ctx, at)
	b.Error, b.Result = format.Clip(b.Attempt.Error, format.MaxOfMessage), format.Clip(b.Attempt.Result, format.MaxOfMessage)
	b.Stdout, b.Stderr = format.Clip(output.Stdout, format.MaxOfMessage), format.Clip(output.Stderr, format.MaxOfMessage)
	return err
}

// neighbours returns links to the last attempts of the previous and the next sample, and
// to the group.
func neighbours(trials []record.Trial, at record.Address) []link {
	var before, after *record.Trial
	for i, t := range trials {
		switch {
		case t.Sample < at.Sample && (before == nil || t.Sample >= before.Sample):
			before = &trials[i]
		case t.Sample > at.Sample && (after == nil || t.Sample <= after.Sample):
			after = &trials[i]
		}
	}
	out := []link{{Text: "All samples", Path: groupPath(at.RolloutID)}}
	if before != nil {
		out = append([]link{{Text: fmt.Sprintf("Previous: sample %d", before.Sample), Path: attemptPath(before.Address)}}, out...)
	}
	if after != nil {
		out = append(out, link{Text: fmt.Sprintf("Next: sample %d", after.Sample), Path: attemptPath(after.Address)})
	}
	return out
}

// calls reads the calls of a page, a few at a time. Each call repeats the whole dialog
// before it, so of long calls only few fit a page.
func (s *Server) calls(ctx context.Context, a record.Address, from, token int) ([]record.Exchange, error) {
	var out []record.Exchange
	for room := tokensPerPage + token; len(out) < callsPerPage && room > 0; {
		next, err := s.Records.ExchangesBetween(ctx, a, from+len(out), from+len(out)+callsAtOnce)
		if err != nil {
			return nil, err
		}
		out = append(out, next...)
		for _, c := range next {
			room -= len(c.Completion)
		}
		if len(next) < callsAtOnce {
			break
		}
	}
	return out, nil
}

// conversation reads the calls from one on, as many as a page has room for.
func (s *Server) conversation(ctx context.Context, b *attemptBody, credit *trained.Attempt, from, token int) error {
	total := b.Attempt.Calls
	from = min(from, max(0, total-1))
	calls, err := s.calls(ctx, b.Address, from, token)
	if err != nil {
		return err
	}
	c := conversation{page: s, attempt: b, credit: credit, room: tokensPerPage}
	codec, err := s.Codecs(b.Terms.Codec)
	if err != nil {
		b.Codec = format.Clip(err.Error(), format.MaxOfLine).Text
	} else {
		c.codec = codec
	}
	if err := c.read(ctx, calls); err != nil {
		return err
	}
	b.First, b.Last = from+1, from
	for i := range calls {
		offset := 0
		if i == 0 {
			offset = token
		}
		rest := c.add(i, offset)
		b.Last = calls[i].Seq + 1
		if rest > 0 {
			b.After = fmt.Sprintf("?call=%d&token=%d", calls[i].Seq, rest)
			break
		}
		if c.room == 0 && b.Last < total {
			break
		}
	}
	if b.After == "" && b.Last < total && len(calls) > 0 {
		b.After = fmt.Sprintf("?call=%d", b.Last)
	}
	if from > 0 || token > 0 {
		b.Before = fmt.Sprintf("?call=%d", max(0, from-callsPerPage))
	}
	b.scale()
	b.lanes(calls)
	return nil
}

// lanes places the calls of this page, and the spans that agents reported, on a time
// axis. Each agent and policy has a lane, and so have the tools of each agent.
func (b *attemptBody) lanes(calls []record.Exchange) {
	b.Lanes.Title = "Calls and tools in time"
	add := func(name string, bar figure.Bar) {
		i := slices.IndexFunc(b.Lanes.Rows, func(l figure.Lane) bool { return l.Name == name })
		if i < 0 {
			if len(b.Lanes.Rows) == maxLanes {
				b.NotDrawn++
				return
			}
			i, b.Lanes.Rows = len(b.Lanes.Rows), append(b.Lanes.Rows, figure.Lane{Name: name})
		}
		b.Lanes.Rows[i].Bars = append(b.Lanes.Rows[i].Bars, bar)
	}
	var from, to time.Time
	for i, c := range b.Calls {
		call := calls[i]
		end := call.Started.Add(call.Duration)
		if from.IsZero() || call.Started.Before(from) {
			from = call.Started
		}
		if end.After(to) {
			to = end
		}
		name, class := c.Agent, "call"
		if call.Policy != model.DefaultPolicy {
			name += ", " + format.FirstLine(call.Policy)
		}
		if c.Replayed > 0 {
			class = "replay"
		}
		add(name, figure.Bar{From: call.Started, To: end, Class: class, Path: fmt.Sprintf("#call-%d", c.Seq), Text: fmt.Sprintf("call %d, %s, %s", c.Seq, format.Took(call.Duration), readable.Count(c.Sampled, "token"))})
	}
	for _, one := range b.Spans {
		if one.Ended.Before(from) || one.Started.After(to.Add(time.Minute)) && b.After != "" {
			continue // it ran during calls of another page
		}
		if one.Started.IsZero() || !from.IsZero() && one.Ended.Sub(to) > spanSlack || !from.IsZero() && from.Sub(one.Started) > spanSlack {
			b.NotDrawn++ // an agent may report any time, and one such span would stretch the axis too far
			continue
		}
		lane, what, class := spanLane(one)
		add(lane, figure.Bar{From: one.Started, To: one.Ended, Class: class, Text: what + ", " + format.Took(one.Ended.Sub(one.Started))})
	}
	b.NotDrawn += b.Lanes.Hidden() + b.MoreSpans
}

// spanLane returns the lane of a span, the text and the class of its bar. The lane is named
// for the kind of its spans and for the agent that reported them.
func spanLane(one record.Span) (lane, what, class string) {
	lane, what, class = "other spans", one.Name, "told"
	switch one.Kind {
	case record.ToolSpan:
		lane, what, class = "tools", one.Tool, "ran"
	case record.AgentSpan:
		lane = "agent spans"
	case record.ModelSpan:
		lane = "model spans"
	case record.OtherSpan:
	}
	if one.Agent != "" {
		lane += ": " + format.FirstLine(one.Agent)
	}
	if one.Failed {
		class = "failed"
	}
	return lane, format.FirstLine(cmp.Or(what, one.Name, "nameless")), class
}

const (
	// maxLanes is how many lanes are drawn, and maxSpans how many spans.
	maxLanes = 12
	maxSpans = 300
	// spanSlack is how far from the calls a span may be on the axis.
	spanSlack = 24 * time.Hour
)

// pickedRow is an attempt in the list of those that a reader asked for.
type pickedRow struct {
	record.Trial
	Text, Path string
	State      string // how it ended, or that it runs
	Cause      string // why its agent failed
}

// pick lists the attempts that ended in one way, if the reader asks for one, or all.
func (s *Server) pick(r *http.Request, b *stepBody, trials []record.Trial, run record.Run) (err error) {
	query := r.URL.Query()
	outcome, failure, cutOff := query.Get("outcome"), query.Get("failure"), query.Get("cut_off") != ""
	every := query.Has("attempts")
	switch {
	case cutOff:
		b.PickedBy = "a reply was cut off at a limit of tokens"
	case failure != "":
		b.PickedBy = verdict.Failure(format.FirstLine(failure))
	case outcome != "":
		b.PickedBy = format.FirstLine(outcome)
	case every:
		b.PickedBy = "all"
	default:
		return nil
	}
	states := record.StatesOf(trials, run)
	var rows []pickedRow
	for i, t := range trials {
		state := words(states[i])
		picked := every || state == outcome
		switch {
		case cutOff:
			picked = t.CutOff > 0
		case failure != "":
			picked = failureOf(t) == failure
		}
		if picked {
			rows = append(rows, pickedRow{Trial: t, State: state, Text: fmt.Sprintf("%s, sample %d, attempt %d", format.FirstLine(t.TaskID), t.Sample, t.Attempt), Path: attemptPath(t.Address)})
		}
	}
	b.Picked, b.PickedSearch = listing.Narrow(r, rows, maxPicked, attemptOrder())
	for i := range b.Picked {
		if b.Picked[i].Cause, err = s.cause(r.Context(), b.Picked[i].Trial); err != nil {
			return err
		}
	}
	return nil
}

// attemptOrder says how attempts can be searched and sorted.
func attemptOrder() listing.Order[pickedRow] {
	return listing.Order[pickedRow]{
		Prefix: "attempt_", Anchor: "#picked",
		Text: func(a pickedRow) string { return a.Text + " " + a.State + " " + a.Failure },
		Sorts: []listing.Sort[pickedRow]{
			{Text: "task and sample"},
			{Name: "low", Text: "reward, lowest first", Compare: func(a, b pickedRow) int { return compareKnown(a.Reward, b.Reward, 1) }},
			{Name: "high", Text: "reward, highest first", Compare: func(a, b pickedRow) int { return compareKnown(a.Reward, b.Reward, -1) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b pickedRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
			{Name: "calls", Text: "calls, most first", Compare: func(a, b pickedRow) int { return cmp.Compare(b.Calls, a.Calls) }},
		},
	}
}

// compareKnown compares two values in a direction, and puts what is not known behind what is.
func compareKnown(a, b *float64, direction int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return direction * cmp.Compare(*a, *b)
}

// groupOrder says how the groups of a step, or the tasks of an evaluation, can be searched and
// sorted.
func groupOrder(evaluated bool) listing.Order[groupRow] {
	first := "standard deviation of rewards"
	if evaluated {
		first = "hardest first"
	}
	mean := func(g groupRow) *float64 {
		if g.Rewards.Count == 0 {
			return nil
		}
		return &g.Rewards.Mean
	}
	return listing.Order[groupRow]{
		Text: func(g groupRow) string { return g.TaskID + " " + g.Reason },
		Sorts: []listing.Sort[groupRow]{
			{Text: first},
			{Name: "low", Text: "mean reward, lowest first", Compare: func(a, b groupRow) int { return compareKnown(mean(a), mean(b), 1) }},
			{Name: "high", Text: "mean reward, highest first", Compare: func(a, b groupRow) int { return compareKnown(mean(a), mean(b), -1) }},
			{Name: "name", Text: "name", Compare: func(a, b groupRow) int { return cmp.Compare(a.TaskID, b.TaskID) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b groupRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
			{Name: "attempts", Text: "attempts, most first", Compare: func(a, b groupRow) int { return cmp.Compare(b.Attempts, a.Attempts) }},
		},
	}
}
