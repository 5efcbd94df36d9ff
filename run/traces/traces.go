// Package traces shows what a run did as OpenTelemetry traces, and sends them to a collector.
// It makes them from the record, after the fact: nothing that runs is instrumented, and
// nothing waits for a collector.
//
// There is one trace for each finished training step, and one for each evaluation:
//
//	rl.loop                      a step, or rl.evaluation
//	├─ rl.sample                 an attempt, those that were replaced too
//	│  ├─ chat RUN@3             a model call
//	│  ├─ …                      what the agent's own instrumentation sent (spans)
//	│  └─ rl.reward              its grading, if a program graded it
//	├─ rl.credit                 making the batch
//	└─ rl.train                  making the version; below it one for each of several policies
//
// Names and attributes beginning with "rl." are those proposed to OpenTelemetry
// (open-telemetry/semantic-conventions-genai, issue 88), which may change; those beginning
// with "gen_ai." are its conventions for generative AI. What they lack begins with
// "fulgurite.".
//
// # What may be relied on
//
// Ids of traces and spans follow from the run and from what a span stands for, so a trace
// that is made again is equal. Traces have no texts of prompts, replies, results or tools,
// except for what the agent's own instrumentation sent.
package traces

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Store is the part of a store that traces are made from.
type Store interface {
	Attempts(ctx context.Context, run string, kind record.Kind, step int) ([]record.Attempt, error)
	Times(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.AttemptTimes, error)
	Calls(ctx context.Context, address record.Address) ([]record.Call, error)
	Spans(ctx context.Context, address record.Address) ([]record.Span, error)
	Batch(ctx context.Context, run, policy string, step int) (record.Batch, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
}

// Reader makes the traces of a run.
type Reader struct {
	store   Store
	storeID string
	run     record.Run
	spec    spec.Spec
}

// NewReader returns a reader of a run's traces. id names the store, so that runs of equal
// names in two stores have different ids.
func NewReader(store Store, id string, run record.Run) (*Reader, error) {
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return nil, fmt.Errorf("read the spec of run %s: %w", run.Name, err)
	}
	return &Reader{store: store, storeID: id, run: run, spec: s}, nil
}

// policy is whose versions and evaluations a run has.
func (r *Reader) policy() string {
	if r.spec.Optimizer != nil {
		return record.PromptsPolicy
	}
	return model.DefaultPolicy
}

// Step returns the spans of a finished training step. The first is the step's own.
func (r *Reader) Step(ctx context.Context, step record.Step) ([]*v1.Span, error) {
	t := r.trace(string(record.Train), step.Step)
	root := t.span("rl.loop", t.root)
	values := map[string]any{"rl.loop.iteration": step.Step, "fulgurite.batch": step.Batch}
	if mean, ok := step.Reward(); ok {
		values["rl.reward.mean"] = mean
	}
	root.Attributes = attributes(values)
	spans, begun, err := r.samples(ctx, t, step.Step, func(record.Attempt) bool { return true }, record.Train, record.Reserve)
	if err != nil {
		return nil, err
	}
	root.StartTimeUnixNano, root.EndTimeUnixNano = nanos(begun), nanos(step.At)
	batch, err := r.store.Batch(ctx, r.run.Name, step.Policy, step.Step)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, err
	}
	if err == nil && !batch.Begun.IsZero() {
		credit := t.span("rl.credit", t.root, "credit")
		credit.StartTimeUnixNano, credit.EndTimeUnixNano = nanos(batch.Begun), nanos(batch.At)
		credit.Attributes = attributes(map[string]any{"fulgurite.sequences": batch.Sequences, "fulgurite.tokens": batch.Tokens, "fulgurite.trained_tokens": batch.Trained})
		spans = append(spans, credit)
	}
	updates, err := r.updates(ctx, t, step)
	if err != nil {
		return nil, err
	}
	return append(append([]*v1.Span{root}, spans...), updates...), nil
}

// updates returns the spans of making the version of a step: the joint one and, below it,
// those of several policies.
func (r *Reader) updates(ctx context.Context, t trace, step record.Step) (spans []*v1.Span, err error) {
	parent := t.root
	for _, policy := range append([]string{step.Policy}, r.spec.PolicyNames()...) {
		v, err := r.store.Version(ctx, model.VersionID{Run: r.run.Name, Policy: policy, Number: step.Step})
		if errors.Is(err, record.ErrNotFound) {
			continue // a search for prompts has steps without versions
		}
		if err != nil {
			return nil, err
		}
		if v.Begun.IsZero() {
			continue
		}
		update := t.span("rl.train", parent, "update", policy)
		update.StartTimeUnixNano, update.EndTimeUnixNano = nanos(v.Begun), nanos(v.Created)
		values := map[string]any{"fulgurite.policy": policy, "fulgurite.version": v.Number}
		for part, took := range map[string]time.Duration{
			"load": v.Work.Load, "score": v.Work.Score, "gradient": v.Work.Gradient, "optimizer": v.Work.Optimizer, "save": v.Work.Save,
		} {
			if took > 0 {
				values["fulgurite.train."+part+"_seconds"] = took.Seconds()
			}
		}
		update.Attributes = attributes(values)
		if policy == step.Policy {
			parent = [8]byte(update.GetSpanId())
		}
		spans = append(spans, update)
	}
	return spans, nil
}

// Evaluation returns the spans of an evaluation that is on record. The first is its own. Of a
// version that is promoted alone it has only the attempts of its own evaluation, and those of
// what it was compared with, if these were made for it.
func (r *Reader) Evaluation(ctx context.Context, e record.Evaluation) ([]*v1.Span, error) {
	name, values := string(e.Kind), map[string]any{
		"fulgurite.version": e.Version, "rl.reward.mean": e.Mean, "fulgurite.tasks": e.Tasks, "fulgurite.rollouts": e.Rollouts,
	}
	keep := func(record.Attempt) bool { return true }
	if r.spec.Promotion.Alone && e.Policy != r.policy() {
		name += "/" + e.Policy
		values["fulgurite.policy"] = e.Policy
		first, baseline := r.spec.FirstTask(e.Policy, e.Tasks), r.spec.FirstBaselineTask(e.Policy, e.Tasks)
		keep = func(a record.Attempt) bool {
			return a.Task >= first && a.Task < first+e.Tasks || a.Task >= baseline && a.Task < baseline+e.Tasks
		}
	}
	t := r.trace(name, e.Version)
	root := t.span("rl.evaluation", t.root)
	root.Attributes = attributes(values)
	spans, begun, err := r.samples(ctx, t, e.Version, keep, e.Kind)
	if err != nil {
		return nil, err
	}
	if begun.IsZero() {
		begun = e.At
	}
	root.StartTimeUnixNano, root.EndTimeUnixNano = nanos(begun), nanos(e.At)
	return append([]*v1.Span{root}, spans...), nil
}

// samples returns the spans of the attempts to keep of some kinds at a step, and when the first
// of them began.
func (r *Reader) samples(ctx context.Context, t trace, step int, keep func(record.Attempt) bool, kinds ...record.Kind) (spans []*v1.Span, begun time.Time, err error) {
	for _, kind := range kinds {
		attempts, err := r.store.Attempts(ctx, r.run.Name, kind, step)
		if err != nil {
			return nil, begun, err
		}
		times, err := r.store.Times(ctx, r.run.Name, r.policy(), kind, step)
		if err != nil {
			return nil, begun, err
		}
		of := make(map[record.Address]record.AttemptTimes, len(times))
		for _, a := range times {
			of[a.Address] = a
		}
		for _, a := range attempts {
			if !keep(a) {
				continue
			}
			if begun.IsZero() || a.Begun.Before(begun) {
				begun = a.Begun
			}
			sample, err := r.sample(ctx, t, a, of[a.Address])
			if err != nil {
				return nil, begun, fmt.Errorf("trace attempt %s: %w", a.Address, err)
			}
			spans = append(spans, sample...)
		}
	}
	return spans, begun, nil
}

// sample returns the spans of an attempt.
func (r *Reader) sample(ctx context.Context, t trace, a record.Attempt, times record.AttemptTimes) ([]*v1.Span, error) {
	calls, err := r.store.Calls(ctx, a.Address)
	if err != nil {
		return nil, err
	}
	reported, err := r.store.Spans(ctx, a.Address)
	if err != nil {
		return nil, err
	}
	address := a.Address.String()
	root := t.span("rl.sample", t.root, "attempt", address)
	end := a.Ended
	if times.Graded.After(end) {
		end = times.Graded
	}
	for _, c := range calls { // for attempts that no one sealed
		if until := c.Started.Add(c.Duration); a.Ended.IsZero() && until.After(end) {
			end = until
		}
	}
	if end.IsZero() {
		end = a.Begun
	}
	root.StartTimeUnixNano, root.EndTimeUnixNano = nanos(a.Begun), nanos(end)
	values := map[string]any{
		"rl.sample.task.id": a.TaskID, "rl.sample.turns": a.Calls, "rl.sample.output_tokens": a.Tokens,
		"fulgurite.attempt": address, "fulgurite.kind": string(a.Kind), "fulgurite.version": a.Terms.Version, "fulgurite.outcome": string(a.Outcome),
	}
	if a.Reward != nil {
		values["rl.reward.score"] = *a.Reward
	}
	if a.Failure != "" {
		values["fulgurite.failure"] = a.Failure
	}
	root.Attributes = attributes(values)
	if a.Outcome == record.InfraFault || a.Outcome == record.AgentFailed {
		root.Status = &v1.Status{Code: v1.Status_STATUS_CODE_ERROR, Message: a.Error}
	}

	spans := []*v1.Span{root}
	parent := [8]byte(root.GetSpanId())
	byCall := map[string][8]byte{} // what an agent's instrumentation says of calls
	for _, s := range reported {
		span := t.reported(s, parent, address)
		if s.Kind == record.ModelSpan && s.CallID != "" {
			byCall[s.CallID] = [8]byte(span.GetSpanId())
		}
		spans = append(spans, span)
	}
	for _, c := range calls {
		within, ok := byCall[c.ID]
		if !ok {
			within = parent
		}
		spans = append(spans, r.call(t, c, within, address))
	}
	if !times.Graded.IsZero() && !times.Returned.IsZero() && times.Graded.After(times.Returned) {
		graded := t.span("rl.reward", parent, "reward", address)
		graded.StartTimeUnixNano, graded.EndTimeUnixNano = nanos(times.Returned), nanos(times.Graded)
		if a.Reward != nil {
			graded.Attributes = attributes(map[string]any{"rl.reward.score": *a.Reward})
		}
		spans = append(spans, graded)
	}
	return spans, nil
}

// call returns the span of a model call.
func (r *Reader) call(t trace, c record.Call, parent [8]byte, address string) *v1.Span {
	name := model.VersionID{Run: r.run.Name, Policy: c.Policy, Number: c.Version}.String()
	span := t.span("chat "+name, parent, "call", address, fmt.Sprint(c.Seq))
	span.Kind = v1.Span_SPAN_KIND_SERVER
	span.StartTimeUnixNano, span.EndTimeUnixNano = nanos(c.Started), nanos(c.Started.Add(c.Duration))
	values := map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "fulgurite", "gen_ai.response.model": name, "gen_ai.response.id": c.ID,
		"gen_ai.request.temperature": c.Temperature, "gen_ai.usage.input_tokens": len(c.Prompt), "gen_ai.usage.output_tokens": len(c.Completion),
		"gen_ai.response.finish_reasons": []string{c.Finish}, "fulgurite.call": c.Seq,
	}
	if c.Agent != "" {
		values["gen_ai.agent.name"] = c.Agent
	}
	if c.Server != "" {
		values["server.address"] = c.Server
	}
	if c.ReplayedFrom > 0 {
		values["fulgurite.replayed_from"] = c.ReplayedFrom
	}
	for part, took := range map[string]time.Duration{"queued": c.Sampling.Queued, "prefill": c.Sampling.Prefill, "decode": c.Sampling.Decode} {
		if took > 0 {
			values["fulgurite.sampling."+part+"_seconds"] = took.Seconds()
		}
	}
	span.Attributes = attributes(values)
	if c.ParseError != "" {
		span.Status = &v1.Status{Code: v1.Status_STATUS_CODE_ERROR, Message: c.ParseError}
	}
	return span
}

// reported returns a span that an agent sent, as a part of the attempt's trace.
func (t trace) reported(s record.Span, attempt [8]byte, address string) *v1.Span {
	parent := attempt
	if s.Parent != "" {
		parent = t.id("span", address, s.Trace, s.Parent)
	}
	span := t.span(s.Name, parent, "span", address, s.Trace, s.ID)
	span.StartTimeUnixNano, span.EndTimeUnixNano = nanos(s.Started), nanos(s.Ended)
	values := maps.Clone(s.Attributes)
	if values == nil {
		values = map[string]any{}
	}
	if s.Agent != "" {
		values["gen_ai.agent.name"] = s.Agent
	}
	if s.Tool != "" {
		values["gen_ai.tool.name"] = s.Tool
	}
	span.Attributes = attributes(values)
	if s.Failed {
		span.Status = &v1.Status{Code: v1.Status_STATUS_CODE_ERROR, Message: s.Message}
	}
	return span
}

// trace makes spans of one trace.
type trace struct {
	ID   [16]byte
	root [8]byte // span id
}

// trace returns the trace of a step, or of a version's evaluation. Its id follows from the
// store, the run and when the run was created.
func (r *Reader) trace(kind string, step int) trace {
	sum := digest("trace", r.storeID, r.run.Name, fmt.Sprint(r.run.Created.UnixNano()), kind, fmt.Sprint(step))
	t := trace{ID: [16]byte(sum[:16])}
	t.root = t.id()
	return t
}

// id returns the id of the span that names stand for.
func (t trace) id(names ...string) [8]byte {
	sum := digest(append([]string{"span", string(t.ID[:])}, names...)...)
	return [8]byte(sum[:8])
}

// span returns a span below parent. Without names it is the trace's root.
func (t trace) span(name string, parent [8]byte, names ...string) *v1.Span {
	id := t.id(names...)
	s := &v1.Span{TraceId: t.ID[:], SpanId: id[:], Name: name, Kind: v1.Span_SPAN_KIND_INTERNAL}
	if id != t.root {
		s.ParentSpanId = parent[:]
	}
	return s
}

// digest returns the SHA-256 of texts, each with its length before it.
func digest(texts ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// nanos returns a time as OTLP has it; 0 for none.
func nanos(t time.Time) uint64 {
	if t.IsZero() || t.UnixNano() < 0 {
		return 0
	}
	return uint64(t.UnixNano()) //nolint:gosec // it is not negative
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
