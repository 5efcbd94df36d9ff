package activities

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Shadows keeps what candidates reply to recorded calls, which nobody is shown.
type Shadows interface {
	// Conversations returns the conversations that a query selects, the newest first.
	Conversations(ctx context.Context, q record.ConversationQuery) ([]record.ConversationSummary, error)
	// PutShadowReply records a reply, unless one to the call is recorded.
	PutShadowReply(ctx context.Context, r record.ShadowReply) (created bool, err error)
	ShadowReplies(ctx context.Context, q record.ShadowQuery) ([]record.ShadowReply, error)
	// ExchangesBetween reads some calls of an attempt with their bodies. A prompt has only what
	// follows the parent's tokens.
	ExchangesBetween(ctx context.Context, address record.Address, from, to int) ([]record.Exchange, error)
}

// ShadowInput names a candidate, and the version whose recorded replies it is compared with.
type ShadowInput struct {
	Run       string `json:"run"`
	Policy    string `json:"policy"`
	Candidate int    `json:"candidate"`
	Promoted  int    `json:"promoted"`
}

// ShadowResult says how the candidate replied.
type ShadowResult struct {
	Shadow model.Shadow `json:"shadow"`
}

const (
	// shadowAtOnce is how many replies are sampled at once: fewer than the rollouts of an
	// evaluation, so that clients wait no longer.
	shadowAtOnce = 4
	// shadowCalls is how many calls of one conversation are compared, so that a long one is not
	// the whole sample. They are its first: which calls these are depends on no later reply.
	shadowCalls = 8
	// shadowTries is how often a candidate may fail in a way that may pass, while the promoted
	// version answers the same.
	shadowTries = 3
	// shadowPause is the longest time between tries, and firstShadowPause the first. Failures
	// of a candidate count only if they are shadowPause apart, since one server that starts
	// anew is no fault of the version.
	shadowPause      = 10 * time.Second
	firstShadowPause = 100 * time.Millisecond
	// shadowSearch is how long prompts are looked for after the end.
	shadowSearch = time.Minute
	// shadowPage is how many conversations are listed at once.
	shadowPage = 64
)

// RunShadow lets a candidate reply to prompts that the promoted version has answered in use,
// and compares the replies with the recorded ones. Every reply is recorded, and an execution
// that was interrupted goes on with what is not on record. When the time of
// traffic.train.shadow is over, what there is by then is compared.
func (c *Coordinator) RunShadow(ctx context.Context, in ShadowInput) (_ ShadowResult, err error) {
	defer temporalError(&err)
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return ShadowResult{}, err
	}
	if !s.FromTraffic() || s.Traffic.Train.Shadow == nil {
		return ShadowResult{}, invalid(errors.New("traffic.train.shadow: missing"))
	}
	of := *s.Traffic.Train.Shadow
	shadow := &shadow{ShadowInput: in, coordinator: c, redactor: s.Traffic.Redactor, progress: shadowProgress{Begun: time.Now()}}
	if shadow.redactor != nil && c.Redact == nil {
		return ShadowResult{}, errors.New("traffic.redactor: this process runs no redactor, so nothing that a candidate replies can be recorded")
	}
	if activity.HasHeartbeatDetails(ctx) { // an earlier execution has used a part of the time
		if err := activity.GetHeartbeatDetails(ctx, &shadow.progress); err != nil {
			return ShadowResult{}, fmt.Errorf("read the progress of the shadow of version %d: %w", in.Candidate, err)
		}
	}
	if shadow.codec, err = c.Codecs.named(s.Model.Codec); err != nil {
		return ShadowResult{}, err
	}
	result, err := beating(ctx, beat{progress: shadow.beat}, func(ctx context.Context) (model.Shadow, error) { return shadow.run(ctx, of) })
	return ShadowResult{result}, err
}

// shadow is the work of RunShadow.
type shadow struct {
	ShadowInput
	coordinator *Coordinator
	codec       dialog.Codec
	redactor    *spec.Redactor // nil if texts are recorded as they are

	mu       sync.Mutex
	progress shadowProgress
}

// shadowProgress is what heartbeats tell the next execution.
type shadowProgress struct {
	Begun   time.Time `json:"begun"`
	Replies int       `json:"replies"` // on record
}

func (s *shadow) beat() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// shadowPrompt is a recorded call that the candidate is to answer.
type shadowPrompt struct {
	conversation int
	id           string
	request      model.DecodeRequest
	tools        []dialog.Tool
	promoted     model.ShadowReply
	tries        int       // of the candidate that failed while the promoted version answered
	counted      time.Time // when the last of them failed
	settled      bool      // a reply was recorded, or the conversation is removed
}

func (s *shadow) run(ctx context.Context, of spec.TrafficShadow) (model.Shadow, error) {
	replies, err := s.replies(ctx)
	if err != nil {
		return model.Shadow{}, err
	}
	end := s.progress.Begun.Add(time.Duration(of.Minutes * float64(time.Minute)))
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	searching, ended := context.WithTimeout(ctx, max(0, time.Until(end))+shadowSearch) // who comes late still says what is missing
	defer ended()
	prompts, err := s.prompts(searching, of.Replies, replies)
	if err != nil && searching.Err() == nil {
		return model.Shadow{}, err
	}
	var open []*shadowPrompt
	for _, p := range prompts {
		if _, p.settled = replies[p.id]; !p.settled {
			open = append(open, p)
		}
	}
	s.mu.Lock()
	s.progress.Replies = len(prompts) - len(open)
	s.mu.Unlock()
	if err := s.answerAll(limited, open); err != nil && limited.Err() == nil {
		return model.Shadow{}, err
	}
	if ctx.Err() != nil {
		return model.Shadow{}, context.Cause(ctx)
	}
	if replies, err = s.replies(ctx); err != nil {
		return model.Shadow{}, err
	}
	var pairs []model.ShadowPair
	missing := 0
	for _, p := range prompts {
		switch r, ok := replies[p.id]; {
		case ok:
			pairs = append(pairs, model.ShadowPair{Candidate: shadowReplyOf(r), Promoted: p.promoted})
		case !p.settled:
			missing++
		}
	}
	out, err := model.CompareShadow(s.Promoted, of.Level, pairs)
	out.Missing = missing
	return out, err
}

// shadowReplyOf returns what matters of a reply on record.
func shadowReplyOf(r record.ShadowReply) model.ShadowReply {
	if r.Error != "" {
		return model.ShadowReply{Failed: true}
	}
	return model.ShadowReply{CutOff: r.Finish == record.FinishLength, Empty: r.Reply == "", Tokens: r.Tokens, Seconds: r.Duration.Seconds()}
}

// replies returns what the candidate has replied so far, by the id of the call.
func (s *shadow) replies(ctx context.Context) (map[string]record.ShadowReply, error) {
	all, err := s.coordinator.Shadows.ShadowReplies(ctx, record.ShadowQuery{Run: s.Run, Policy: s.Policy, Candidate: &s.Candidate})
	if err != nil {
		return nil, err
	}
	out := make(map[string]record.ShadowReply, len(all))
	for _, r := range all {
		out[r.CallID] = r
	}
	return out, nil
}

// prompts returns the calls that are compared, at most limit: those that the candidate has
// replied to, and then those of the newest conversations with the promoted version. With an
// error, it returns those that it has found.
func (s *shadow) prompts(ctx context.Context, limit int, replies map[string]record.ShadowReply) ([]*shadowPrompt, error) {
	var out []*shadowPrompt
	taken := map[string]bool{}
	add := func(c record.Conversation, replied bool) error {
		if c.Policy != s.Policy || c.Version != s.Promoted {
			return nil
		}
		calls, err := s.calls(ctx, c)
		for _, p := range calls {
			if _, ok := replies[p.id]; ok == replied && !taken[p.id] && len(out) < limit {
				taken[p.id] = true
				out = append(out, p)
			}
		}
		return err
	}
	var numbers []int
	for _, r := range replies {
		numbers = append(numbers, r.Conversation)
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		c, err := s.coordinator.Traffic.Conversation(ctx, s.Run, n)
		if errors.Is(err, record.ErrNotFound) {
			continue // it was removed meanwhile
		}
		if err == nil {
			err = add(c, true)
		}
		if err != nil {
			return out, err
		}
	}
	for q := (record.ConversationQuery{Run: s.Run, Policy: s.Policy, Version: &s.Promoted, Limit: shadowPage}); len(out) < limit; {
		page, err := s.coordinator.Shadows.Conversations(ctx, q)
		if err != nil {
			return out, err
		}
		for _, c := range page {
			if len(out) < limit {
				err = errors.Join(err, add(c.Conversation, false))
			}
		}
		if err != nil {
			return out, err
		}
		if len(page) < shadowPage || page[len(page)-1].Number == 0 {
			break
		}
		q.Before = page[len(page)-1].Number
	}
	return out, nil
}

// calls returns the first calls of a conversation. Those without tokens, which were redacted,
// are left out, and those whose request is of another release.
func (s *shadow) calls(ctx context.Context, c record.Conversation) ([]*shadowPrompt, error) {
	history, err := s.coordinator.Shadows.ExchangesBetween(ctx, c.Address(), 0, shadowCalls)
	// It is read after the calls: a removal ends the attempt before it takes anything.
	attempt, failure := s.coordinator.Attempts.Attempt(ctx, c.Address())
	switch {
	case errors.Is(failure, record.ErrNotFound), errors.Is(failure, record.ErrForgotten), failure == nil && attempt.Outcome != record.OutcomeRunning:
		return nil, nil // it is being removed
	case failure != nil:
		return nil, fmt.Errorf("read %s: %w", c.Address(), failure)
	case err != nil:
		return nil, fmt.Errorf("read the calls of %s: %w", c.Address(), err)
	}
	for i, x := range history {
		if 0 <= x.Parent && x.Parent < i {
			history[i].Prompt = slices.Concat(history[x.Parent].Prompt, history[x.Parent].Completion, x.Prompt)
		}
	}
	requests := attribution.Requests(history)
	var out []*shadowPrompt
	for i, x := range history {
		r := requests[i]
		if r == nil || len(x.Prompt) == 0 || len(x.Completion) == 0 {
			continue
		}
		p := &shadowPrompt{conversation: c.Number, id: x.ID, tools: r.Tools, request: model.DecodeRequest{
			Prompt: x.Prompt, MaxTokens: attempt.Terms.MaxTokens, Temperature: x.Temperature, TopP: x.TopP, Stop: s.codec.Stop(), Seed: s.seed(x.ID),
		}}
		if r.MaxTokens > 0 {
			p.request.MaxTokens = r.MaxTokens
		}
		if len(x.Form) > 0 {
			p.request.Form = &model.Form{}
			if err := json.Unmarshal(x.Form, p.request.Form); err != nil {
				return nil, invalid(fmt.Errorf("form of call %s: %w", x.ID, err))
			}
		}
		p.promoted = model.ShadowReply{
			CutOff: x.CutOff(), Empty: s.text(x.Completion, r.Tools) == "", Tokens: len(x.Completion), Seconds: x.Duration.Seconds(),
		}
		out = append(out, p)
	}
	return out, nil
}

// seed returns the seed of the reply to a call: the same in every execution.
func (s *shadow) seed(call string) uint64 {
	d := sha256.Sum256(fmt.Appendf(nil, "shadow\n%s\n%s\n%d\n%s", s.Run, s.Policy, s.Candidate, call))
	return binary.LittleEndian.Uint64(d[:])
}

// text returns the text of a completion, and each call of a tool as a line of JSON.
func (s *shadow) text(completion []int32, tools []dialog.Tool) string {
	m, _ := s.codec.Parse(completion, tools, func(k int) string { return fmt.Sprintf("call_%d", k) })
	lines := []string{strings.TrimSpace(m.Content)}
	for _, t := range m.ToolCalls {
		line, _ := json.Marshal(t) // texts alone, so there is no error
		lines = append(lines, string(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// answerAll answers all prompts, and tries again what an outage prevents, until ctx ends.
func (s *shadow) answerAll(ctx context.Context, open []*shadowPrompt) error {
	for pause := firstShadowPause; len(open) > 0; pause = min(2*pause, shadowPause) {
		again := make([]bool, len(open))
		group, inner := errgroup.WithContext(ctx)
		group.SetLimit(shadowAtOnce)
		for i, p := range open {
			group.Go(func() (err error) {
				again[i], err = s.answer(inner, p)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		var left []*shadowPrompt
		for i, p := range open {
			if again[i] {
				left = append(left, p)
			}
		}
		if open = left; len(open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return nil
}

// answer lets the candidate answer a prompt, and records the reply. again says that it could
// not, for a reason that may pass and that is not the candidate's own: a candidate fails if
// the promoted version answers what it does not.
func (s *shadow) answer(ctx context.Context, p *shadowPrompt) (again bool, err error) {
	began := time.Now()
	completion, failure := s.sample(ctx, s.Candidate, p)
	r := record.ShadowReply{
		Run: s.Run, Policy: s.Policy, Candidate: s.Candidate, Conversation: p.conversation, CallID: p.id, Duration: time.Since(began),
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if failure != nil {
		if _, err := s.sample(ctx, s.Promoted, p); err != nil {
			return !hopeless(err) || !hopeless(failure), nil
		}
		if !hopeless(failure) {
			pause := cmp.Or(s.coordinator.ShadowPause, shadowPause)
			if now := time.Now(); now.Sub(p.counted) >= pause {
				p.counted = now
				p.tries++
			}
			if p.tries < shadowTries {
				return true, nil
			}
		}
		r.Error = failure.Error()
	} else {
		r.Reply, r.Tokens, r.Finish = s.text(completion.Tokens, p.tools), len(completion.Tokens), completion.Finish
	}
	if err := s.redact(ctx, &r); err != nil {
		activity.GetLogger(ctx).Warn("a reply in the shadow is not recorded", "call", p.id, "error", err)
		return true, nil
	}
	_, err = s.coordinator.Shadows.PutShadowReply(ctx, r)
	if errors.Is(err, record.ErrForgotten) || errors.Is(err, record.ErrNotFound) {
		p.settled = true
		return false, nil
	}
	if err == nil {
		p.settled = true
		s.mu.Lock()
		s.progress.Replies++
		s.mu.Unlock()
	}
	return false, err
}

// redact has the redactor of the run rewrite the texts of a reply. What it empties is not
// taken for an empty reply.
func (s *shadow) redact(ctx context.Context, r *record.ShadowReply) error {
	if s.redactor == nil {
		return nil
	}
	timeout := time.Duration(s.redactor.TimeoutSeconds * float64(time.Second))
	for _, text := range []*string{&r.Reply, &r.Error} {
		if *text == "" {
			continue
		}
		out, err := s.coordinator.Redact(ctx, s.redactor.Command, timeout, *text)
		if err != nil {
			return fmt.Errorf("redact: %w", err)
		}
		*text = cmp.Or(out, "[redacted]")
	}
	return nil
}

// sample samples a reply of a version.
func (s *shadow) sample(ctx context.Context, version int, p *shadowPrompt) (model.Completion, error) {
	c, _, err := s.coordinator.Sampler.Sample(ctx, model.VersionID{Run: s.Run, Policy: s.Policy, Number: version}, p.request)
	return c, err
}

// hopeless reports whether no sampler would ever answer.
func hopeless(err error) bool {
	return errors.Is(err, model.ErrPromptTooLong) || errors.Is(err, model.ErrForm) || errors.Is(err, model.ErrRefused) || errors.Is(err, model.ErrRow)
}
