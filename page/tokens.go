package page

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/trained"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// tokenMark is a sampled token and its records.
type tokenMark struct {
	Text      string
	ID        int32
	Logprob   *float64
	Advantage *float64
	// Entropy and Trainer are the trainer's values before its first update with the
	// token, in nats: the entropy of its distribution, and the token's log-probability.
	Entropy, Trainer *float64
	// Trained is false for a token that the loss ignores. Batch is true if that is known
	// from the batch. Otherwise only tokens without an alternative are known to be
	// ignored.
	Trained, Batch bool
	Version        int
	// Class and Data are for style and script; scale fills them in.
	Class string
	Data  string
}

// marks returns the tokens of a call's completion.
func (c *conversation) marks(call record.Exchange) []tokenMark {
	if relay, ok := c.codec.(dialog.Relay); ok {
		var out []tokenMark
		for _, p := range relay.Pieces(call.Completion, call.Logprobs) {
			l := float64(p.Logprob)
			out = append(out, tokenMark{Text: format.Visible(p.Text), ID: -1, Logprob: &l, Version: call.Version})
		}
		return out
	}
	out := make([]tokenMark, len(call.Completion))
	given, inBatch := trained.Call{}, false
	if c.credit != nil {
		given, inBatch = c.credit.Calls[call.Seq]
	}
	for i, id := range call.Completion {
		t := tokenMark{Text: c.spell(id), ID: id, Version: call.Version, Trained: c.credit != nil}
		if i < len(call.Logprobs) {
			l := float64(call.Logprobs[i])
			t.Logprob = &l
		}
		if call.Untrained != nil && call.Untrained[i] {
			t.Trained = false
		}
		if inBatch && i < len(given.Advantages) {
			a := float64(given.Advantages[i])
			t.Batch, t.Trained = true, given.Sampled[i]
			if t.Trained {
				t.Advantage = &a
				t.Entropy, t.Trainer = known(given.Entropies[i]), known(given.Trainer[i])
			}
		} else {
			t.Trained = false
		}
		out[i] = t
	}
	return out
}

// known returns nil for a number that was not recorded, which is NaN.
func known(x float32) *float64 {
	v := float64(x)
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// spell returns the text of a token.
func (c *conversation) spell(id int32) string {
	switch codec := c.codec.(type) {
	case nil:
		return strconv.Itoa(int(id)) + " "
	case dialog.Speller:
		return format.Visible(string(codec.Bytes(id)))
	default:
		return format.Visible(codec.Text([]int32{id}))
	}
}

// scale sets the fields that depend on all shown tokens.
func (b *attemptBody) scale() {
	for _, c := range b.Calls {
		for _, t := range c.Tokens {
			if t.Advantage != nil {
				b.Scale = max(b.Scale, math.Abs(*t.Advantage))
			}
		}
	}
	for _, c := range b.Calls {
		for i := range c.Tokens {
			t := &c.Tokens[i]
			t.Class = t.classes(b.Scale)
			t.Data = t.data()
		}
	}
}

// The next shade begins above each of these, in nats: of surprise, which is the negative
// log-probability (99, 90, 61, 37, 14 and 2 %), of entropy, and of the difference between
// trainer and sampler.
func surpriseBounds() []float64   { return []float64{0.01, 0.1, 0.5, 1, 2, 4} }
func entropyBounds() []float64    { return []float64{0.01, 0.1, 0.5, 1, 2, 4} }
func differenceBounds() []float64 { return []float64{1e-5, 1e-4, 1e-3, 0.01, 0.1, 1} }

// shade counts the bounds below x.
func shade(x float64, bounds []float64) int {
	n := 0
	for _, b := range bounds {
		if x > b {
			n++
		}
	}
	return n
}

// difference returns how much likelier the trainer found a token than its sampler did, in
// nats. It returns nil if one of the two values was not recorded.
func (t tokenMark) difference() *float64 {
	if t.Logprob == nil || t.Trainer == nil {
		return nil
	}
	d := *t.Trainer - *t.Logprob
	return &d
}

func (t tokenMark) classes(scale float64) string {
	class := "t"
	if t.Logprob != nil {
		class += fmt.Sprintf(" p%d", shade(-*t.Logprob, surpriseBounds()))
	}
	if t.Entropy != nil {
		class += fmt.Sprintf(" e%d", shade(*t.Entropy, entropyBounds()))
	}
	if d := t.difference(); d != nil {
		class += fmt.Sprintf(" d%d", shade(math.Abs(*d), differenceBounds()))
	}
	if t.Advantage != nil && scale > 0 {
		switch level := int(math.Ceil(math.Abs(*t.Advantage) / scale * 3)); {
		case level == 0:
		case *t.Advantage > 0:
			class += fmt.Sprintf(" up%d", level)
		default:
			class += fmt.Sprintf(" down%d", level)
		}
	}
	if t.Trained {
		class += " on"
	}
	return class + fmt.Sprintf(" v%d", t.Version%4)
}

// data returns the values that the script shows for a token: id, log-probability,
// advantage, mask, version, entropy, and trainer against sampler.
func (t tokenMark) data() string {
	fields := []string{strconv.Itoa(int(t.ID)), "", "", "not in the batch", strconv.Itoa(t.Version), "", ""}
	if t.Logprob != nil {
		fields[1] = strconv.FormatFloat(*t.Logprob, 'f', 4, 64)
	}
	if t.Advantage != nil {
		fields[2] = strconv.FormatFloat(*t.Advantage, 'g', 4, 64)
	}
	if t.Entropy != nil {
		fields[5] = strconv.FormatFloat(*t.Entropy, 'g', 4, 64)
	}
	if d := t.difference(); d != nil {
		fields[6] = strconv.FormatFloat(*d, 'g', 3, 64)
	}
	switch {
	case t.Trained:
		fields[3] = "trained"
	case t.Batch:
		fields[3] = "masked"
	}
	return strings.Join(fields, "|")
}

const (
	// maxEstimators is how many estimators are computed at once, and maxEstimated how
	// many calls are shown.
	maxEstimators = 4
	maxEstimated  = 200
)

// estimatorBody is the credit of an attempt under other settings than its run's.
type estimatorBody struct {
	Attempt  string
	Choices  []choice
	Problem  string
	Making   bool // the step is still being read
	Step     int
	Settings []string
	Reward   float64
	Calls    []estimatedCall
	More     int
	Remarks  []string
	Figure   figure.Figure
}

// choice is a way to assign credit that a reader may tick.
type choice struct {
	Name   string
	Chosen bool
}

// estimatedCall is a call with its advantage under each setting.
type estimatedCall struct {
	compare.Call
	Path  string
	Fired []string // signals
}

// estimators computes the credit of an attempt under other settings, as `fulgurite credit
// --calls` does. Nothing is changed by it.
func (s *Server) estimators(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	at, err := placeOf(run.Name, r.PathValue("step"), r.PathValue("task"), r.PathValue("sample"), r.PathValue("attempt"))
	if err != nil {
		return view{}, err
	}
	if _, err := s.Records.Attempt(r.Context(), at); err != nil {
		return view{}, err
	}
	chosen := r.URL.Query()["with"]
	b := estimatorBody{Attempt: attemptPath(at), Step: at.Step, Choices: choices(chosen)}
	if len(chosen) > maxEstimators {
		chosen, b.Problem = chosen[:maxEstimators], fmt.Sprintf("The first %d are shown.", maxEstimators)
	}
	if at.Kind == record.Train || at.Kind == record.Reserve {
		err = s.estimate(r.Context(), &b, at, chosen)
	} else {
		b.Problem = "Only what a step was trained on has credit."
	}
	if err != nil {
		return view{}, err
	}
	v := runView("estimator", run, "Steps", link{Text: stepName(at.Kind, at.Step), Path: stepPath(run.Name, at.Kind, at.Step)},
		link{Text: fmt.Sprintf("Sample %d, attempt %d", at.Sample, at.Attempt), Path: b.Attempt}, link{Text: "Credit"})
	v.Follow, v.Body = "", b
	return v, nil
}

func choices(chosen []string) []choice {
	var names []string
	for _, a := range credit.Assignments() {
		names = append(names, string(a))
	}
	for _, name := range spec.Algorithms() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]choice, len(names))
	for i, name := range names {
		out[i] = choice{name, slices.Contains(chosen, name)}
	}
	return out
}

// estimate adds the calls. If the step lacks what a setting needs, the page says so.
func (s *Server) estimate(ctx context.Context, b *estimatorBody, at record.Address, chosen []string) error {
	key := fmt.Sprintf("%s %d", at.Run, at.Step)
	opened := s.opened.Of(ctx, key, key, false, s.Patience, func() (*compare.Step, error) {
		return compare.Open(s.ctx, oneBatch{s.Records, at}, s.Blobs, at.Run, model.DefaultPolicy, at.Step)
	})
	b.Making = opened.Making
	if opened.Err != nil {
		b.Problem = format.Shown(opened.Err.Error())
		return nil
	}
	if !opened.Known {
		return nil
	}
	settings, err := compare.Settings(opened.Value.Spec, chosen)
	var calls compare.Calls
	if err == nil {
		calls, err = opened.Value.Calls(at, settings)
	}
	if err != nil {
		b.Problem = format.Shown(err.Error())
		return nil
	}
	b.Settings, b.Reward = calls.Settings, calls.Reward
	b.Figure = figure.Figure{Title: "Advantage", Unit: "call", Note: "of the trained tokens of each call"}
	for i, name := range calls.Settings {
		line := figure.Curve{Name: format.FirstLine(name)}
		for _, c := range calls.List {
			if c.Trained {
				line.Points = append(line.Points, figure.Point{X: float64(c.Number), Y: c.Advantages[i]})
			}
		}
		b.Figure.Lines = append(b.Figure.Lines, line)
	}
	for _, c := range calls.List[:min(len(calls.List), maxEstimated)] {
		one := estimatedCall{Call: c, Path: fmt.Sprintf("%s?call=%d", b.Attempt, c.Number)}
		for _, fired := range c.Signals {
			one.Fired = append(one.Fired, format.FirstLine(fired.Text()))
		}
		one.Call.Agent = format.FirstLine(c.Agent)
		b.Calls = append(b.Calls, one)
	}
	b.More = len(calls.List) - len(b.Calls)
	return nil
}

// oneBatch are records in which a run has the batch of one step, so that no others are
// looked up.
type oneBatch struct {
	Records
	at record.Address
}

func (o oneBatch) Batches(ctx context.Context, run, policy string) ([]record.Batch, error) {
	b, err := o.Batch(ctx, run, policy, o.at.Step)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	return []record.Batch{b}, err
}
