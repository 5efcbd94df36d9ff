package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// shadowUse is a run whose candidate 1 replies in the shadow of version 0, by a script.
type shadowUse struct {
	*use
	reply func(ctx context.Context, version int, r model.DecodeRequest) (model.Completion, error)

	mu    sync.Mutex
	asked []model.DecodeRequest // of the candidate
}

func newShadow(t *testing.T, of spec.TrafficShadow) *shadowUse {
	t.Helper()
	u := &shadowUse{use: newUse(t, func(s *spec.Spec) { s.Traffic.Train.Shadow = &of })}
	u.reply = func(context.Context, int, model.DecodeRequest) (model.Completion, error) {
		return says("fine", "stop"), nil
	}
	u.coordinator.Shadows, u.coordinator.Sampler, u.coordinator.ShadowPause = u.store, u, time.Millisecond
	return u
}

// Sample implements model.Sampler.
func (u *shadowUse) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	if v.Number == 1 {
		u.mu.Lock()
		u.asked = append(u.asked, r)
		u.mu.Unlock()
	}
	c, err := u.reply(ctx, v.Number, r)
	return c, "weights", err
}

func says(text, finish string) model.Completion {
	codec := dialog.Compact()
	tokens := codec.Encode(text)
	if finish == "stop" {
		tokens = append(tokens, codec.Stop()[0])
	}
	return model.Completion{Tokens: tokens, Finish: finish}
}

// asks records a conversation with a version and a call for each change.
func (u *shadowUse) asks(version int, changes ...func(*record.Exchange)) record.Conversation {
	u.t.Helper()
	c, _, err := u.store.BeginConversation(u.t.Context(), record.Conversation{Run: "demo", Policy: model.DefaultPolicy, Version: version}, record.Terms{
		Policy: model.DefaultPolicy, Version: version, Codec: "compact", ClientSampling: true, MaxTokens: 1024,
	})
	require.NoError(u.t, err)
	codec := dialog.Compact()
	for i, change := range changes {
		question := fmt.Sprintf("%d+%d", c.Number, i)
		prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: question}}, nil)
		require.NoError(u.t, err)
		completion := says("ok", "stop").Tokens
		x := record.Exchange{
			Call: record.Call{
				Address: c.Address(), Seq: i, ID: fmt.Sprintf("reply-%d-%d", c.Number, i), Parent: -1, Policy: model.DefaultPolicy, Version: version, Key: question,
				Prompt: prompt, Completion: completion, Logprobs: make([]float32, len(completion)), Temperature: 0.7, TopP: 0.9, Finish: "stop", Duration: time.Second,
			},
			Request: json.RawMessage(`{"messages":[{"role":"user","content":"` + question + `"}]}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{},
		}
		change(&x)
		require.NoError(u.t, u.store.AppendCall(u.t.Context(), &x))
	}
	return c
}

func asIs(*record.Exchange) {}

func (u *shadowUse) runs(setups ...setup) (model.Shadow, error) {
	u.t.Helper()
	out, err := do[activities.ShadowResult](u.t, u.coordinator.RunShadow, activities.ShadowInput{Run: "demo", Policy: model.DefaultPolicy, Candidate: 1}, setups...)
	return out.Shadow, err
}

func (u *shadowUse) recorded() []record.ShadowReply {
	u.t.Helper()
	all, err := u.store.ShadowReplies(u.t.Context(), record.ShadowQuery{Run: "demo", Policy: model.DefaultPolicy})
	require.NoError(u.t, err)
	return all
}

func TestAShadowAsksWhatUsersAskedThePromotedVersion(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{Replies: 19})
	oldest := u.asks(0, asIs) // beyond the limit
	u.asks(0, asIs, asIs, asIs, asIs, asIs, asIs, asIs, asIs, asIs)
	u.asks(0, asIs, asIs, asIs, asIs, asIs, asIs, asIs, asIs)
	u.asks(1, asIs)
	u.asks(0, func(x *record.Exchange) { x.Prompt, x.Completion, x.Logprobs = nil, nil, nil }, // as if redacted
		asIs, func(x *record.Exchange) {
			x.Request, x.Temperature, x.TopP = json.RawMessage(`{"max_tokens":5,"messages":[{"role":"user","content":"short"}]}`), 0, 0
			x.Finish = record.FinishLength
		})
	newest := u.asks(0, asIs)

	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 19, got.Replies, "1 of the newest conversation, 2 of 3, 8, and 8 of 9")
	require.Len(t, u.recorded(), 19)
	require.Contains(t, idsOf(u.recorded()), fmt.Sprintf("reply-%d-0", newest.Number))
	require.NotContains(t, idsOf(u.recorded()), "reply-3-0", "another version answered it")
	require.NotContains(t, idsOf(u.recorded()), fmt.Sprintf("reply-%d-0", oldest.Number))
	require.Equal(t, 1, got.CutOff.Promoted)
	require.Zero(t, got.CutOff.Candidate)
	require.InDelta(t, 5, got.Tokens.Candidate, 0)
	seeds := map[uint64]bool{}
	limited := 0
	for _, r := range u.asked {
		seeds[r.Seed] = true
		require.Equal(t, dialog.Compact().Stop(), r.Stop)
		if r.MaxTokens == 5 {
			limited++
			require.Zero(t, r.Temperature)
			require.Zero(t, r.TopP)
			continue
		}
		require.Equal(t, 1024, r.MaxTokens)
		require.InDelta(t, 0.7, r.Temperature, 0)
		require.InDelta(t, 0.9, r.TopP, 0)
	}
	require.Equal(t, 1, limited)
	require.Len(t, seeds, 19, "each has a seed of its own")
	for _, r := range u.recorded() {
		require.Equal(t, "fine", r.Reply)
		require.Equal(t, 5, r.Tokens)
	}
}

func idsOf(all []record.ShadowReply) (ids []string) {
	for _, r := range all {
		ids = append(ids, r.CallID)
	}
	return ids
}

func TestAShadowThatWasInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	u, whole := newShadow(t, spec.TrafficShadow{}), newShadow(t, spec.TrafficShadow{})
	for range 20 {
		u.asks(0, asIs)
		whole.asks(0, asIs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	u.reply = func(ctx context.Context, _ int, r model.DecodeRequest) (model.Completion, error) {
		if len(u.recorded()) >= 7 {
			cancel()
			return model.Completion{}, ctx.Err()
		}
		return says(fmt.Sprint(r.Seed), "stop"), nil
	}
	_, err := u.runs(under(ctx))
	require.Error(t, err)
	before := len(u.recorded())
	require.GreaterOrEqual(t, before, 7)
	require.Less(t, before, 20)

	seeded := func(_ context.Context, _ int, r model.DecodeRequest) (model.Completion, error) {
		return says(fmt.Sprint(r.Seed), "stop"), nil
	}
	u.reply, whole.reply, u.asked = seeded, seeded, nil
	got, err := u.runs()
	require.NoError(t, err)
	require.Len(t, u.asked, 20-before, "what is on record is not asked again")
	require.Equal(t, 20, got.Replies)
	_, err = whole.runs()
	require.NoError(t, err)
	require.Equal(t, texts(whole.recorded()), texts(u.recorded()), "the seeds are the same")

	u.asked = nil
	u.asks(0, asIs)
	again, err := u.runs()
	require.NoError(t, err)
	require.Len(t, u.asked, 1, "a run that was reset asks only what is new")
	require.Equal(t, 21, again.Replies)
}

func texts(all []record.ShadowReply) map[string]string {
	out := map[string]string{}
	for _, r := range all {
		out[r.CallID] = r.Reply
	}
	return out
}

func TestACandidateWhoseRepliesAreCutOffEmptyOrFailIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]func() (model.Completion, error){
		"cut off": func() (model.Completion, error) { return says("and so on", "length"), nil },
		"empty":   func() (model.Completion, error) { return says(" ", "stop"), nil },
		"failed":  func() (model.Completion, error) { return model.Completion{}, model.ErrRow },
		"faults":  func() (model.Completion, error) { return model.Completion{}, errors.New("not finite") },
	} {
		u := newShadow(t, spec.TrafficShadow{})
		for range 10 {
			u.asks(0, asIs)
		}
		u.reply = func(_ context.Context, version int, _ model.DecodeRequest) (model.Completion, error) {
			if version == 0 {
				return says("ok", "stop"), nil
			}
			return reply()
		}
		got, err := u.runs()
		require.NoError(t, err, name)
		require.True(t, got.Withdraw, name)
		require.Equal(t, 10, got.CutOff.Candidate+got.Empty.Candidate+got.Failed.Candidate, name)
		if name == "faults" {
			require.Equal(t, "not finite", u.recorded()[0].Error)
		}
	}
}

func TestAnOutageIsNoFaultOfTheCandidate(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	for range 10 {
		u.asks(0, asIs)
	}
	var mu sync.Mutex
	failures := 0
	u.reply = func(context.Context, int, model.DecodeRequest) (model.Completion, error) {
		mu.Lock()
		defer mu.Unlock()
		if failures++; failures < 50 {
			return model.Completion{}, errors.New("no sampler is up")
		}
		return says("ok", "stop"), nil
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 10, got.Replies)
	require.Zero(t, got.Failed.Candidate)
}

func TestAMomentWithoutTheCandidateIsNoFaultOfIt(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	u.coordinator.ShadowPause = time.Minute
	for range 10 {
		u.asks(0, asIs)
	}
	var mu sync.Mutex
	failures := 0
	u.reply = func(_ context.Context, version int, _ model.DecodeRequest) (model.Completion, error) {
		mu.Lock()
		defer mu.Unlock()
		if version == 1 {
			if failures++; failures <= 50 { // five of each prompt
				return model.Completion{}, errors.New("the server starts anew")
			}
		}
		return says("ok", "stop"), nil
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 10, got.Replies)
	require.Zero(t, got.Failed.Candidate)
}

func TestWhatNoVersionCanAnswerIsNotTriedUntilTheEnd(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	u.asks(0, asIs)
	u.reply = func(context.Context, int, model.DecodeRequest) (model.Completion, error) {
		return model.Completion{}, model.ErrPromptTooLong
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 1, got.Missing)
	require.Len(t, u.asked, 1)
}

func TestRepliesInAShadowAreRedacted(t *testing.T) {
	t.Parallel()
	u := &shadowUse{use: newUse(t, func(s *spec.Spec) {
		s.Traffic.Train.Shadow = &spec.TrafficShadow{}
		s.Traffic.Redactor = &spec.Redactor{Command: []string{"hide"}}
	})}
	u.coordinator.Shadows, u.coordinator.Sampler = u.store, u
	u.reply = func(_ context.Context, _ int, r model.DecodeRequest) (model.Completion, error) {
		if r.Seed%2 == 0 {
			return says("ann", "stop"), nil
		}
		return says("write to ann", "stop"), nil
	}
	for range 10 {
		u.asks(0, asIs)
	}
	_, err := u.runs()
	require.ErrorContains(t, err, "traffic.redactor: this process runs no redactor")
	failures := 0
	var mu sync.Mutex
	u.coordinator.Redact = func(_ context.Context, command []string, timeout time.Duration, text string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if failures++; failures < 3 {
			return "", errors.New("it starts")
		}
		if command[0] != "hide" || timeout != 10*time.Second {
			return "", fmt.Errorf("%v within %s", command, timeout)
		}
		return strings.TrimSpace(strings.ReplaceAll(text, "ann", "")), nil
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 10, got.Replies)
	require.Zero(t, got.Empty.Candidate, "a reply that the redactor empties was none")
	for _, r := range u.recorded() {
		require.Contains(t, []string{"write to", "[redacted]"}, r.Reply)
	}
}

// halfRemoved is a store in which the removal of some conversations was killed: their calls
// have no bodies any more.
type halfRemoved struct {
	*store.Store
	numbers []int
}

func (h halfRemoved) ExchangesBetween(ctx context.Context, a record.Address, from, to int) ([]record.Exchange, error) {
	if slices.Contains(h.numbers, a.Task) {
		return nil, errors.New("its calls have no bodies")
	}
	return h.Store.ExchangesBetween(ctx, a, from, to)
}

func (h halfRemoved) Attempt(ctx context.Context, a record.Address) (record.Attempt, error) {
	out, err := h.Store.Attempt(ctx, a)
	if slices.Contains(h.numbers, a.Task) {
		out.Outcome = record.OutcomeCompleted // the first write of a removal
	}
	return out, err
}

func TestAConversationWhoseRemovalWasKilledIsNoPartOfTheShadow(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	for range 5 {
		u.asks(0, asIs)
	}
	h := halfRemoved{u.store, []int{1, 3}}
	u.coordinator.Shadows, u.coordinator.Attempts = h, h
	got, err := u.runs()
	require.NoError(t, err)
	require.Equal(t, 3, got.Replies)
	require.Zero(t, got.Missing)
}

func TestPromptsInAShadowAreWhole(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	c := u.asks(0, asIs)
	calls, err := u.store.Calls(t.Context(), c.Address())
	require.NoError(t, err)
	next := calls[0]
	next.Seq, next.ID, next.Parent, next.Key = 1, "next", 0, "next"
	next.Prompt = slices.Concat(calls[0].Prompt, calls[0].Completion, dialog.Compact().Encode("go on"))
	require.NoError(t, u.store.AppendCall(t.Context(), &record.Exchange{
		Call: next, Request: json.RawMessage(`{"messages":[{"role":"user","content":"go on"}]}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{},
	}))
	_, err = u.runs()
	require.NoError(t, err)
	var prompts [][]int32
	for _, r := range u.asked {
		prompts = append(prompts, r.Prompt)
	}
	require.ElementsMatch(t, [][]int32{calls[0].Prompt, next.Prompt}, prompts)
}

func TestAShadowEndsInTime(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{Minutes: 0.01})
	for range 10 {
		u.asks(0, asIs)
	}
	u.reply = func(ctx context.Context, _ int, r model.DecodeRequest) (model.Completion, error) {
		if len(u.recorded()) == 0 {
			return says("ok", "stop"), nil
		}
		<-ctx.Done()
		return model.Completion{}, ctx.Err()
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Positive(t, got.Replies)
	require.Equal(t, 10, got.Replies+got.Missing)
	require.Contains(t, got.Reason(), fmt.Sprintf("%d more were not answered in time", got.Missing))

	late := newShadow(t, spec.TrafficShadow{Minutes: 10})
	late.asks(0, asIs)
	got, err = late.runs(func(env *testsuite.TestActivityEnvironment) {
		env.SetHeartbeatDetails(map[string]any{"begun": time.Now().Add(-11 * time.Minute)})
	})
	require.NoError(t, err)
	require.Equal(t, 1, got.Missing, "the time of earlier executions counts")
}

func TestAConversationThatIsRemovedMeanwhileIsNoPartOfTheShadow(t *testing.T) {
	t.Parallel()
	u := newShadow(t, spec.TrafficShadow{})
	for range 5 {
		u.asks(0, asIs)
	}
	var once sync.Once
	u.reply = func(context.Context, int, model.DecodeRequest) (model.Completion, error) {
		once.Do(func() {
			for n := range 5 {
				require.NoError(t, u.store.RemoveConversation(context.Background(), "demo", n))
			}
		})
		return says("ok", "stop"), nil
	}
	got, err := u.runs()
	require.NoError(t, err)
	require.Zero(t, got.Missing)
	require.Empty(t, u.recorded())
}

func TestAShadowNeedsItsSettings(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	_, err := do[activities.ShadowResult](t, u.coordinator.RunShadow, activities.ShadowInput{Run: "demo", Policy: model.DefaultPolicy, Candidate: 1})
	requireFinal(t, err, "traffic.train.shadow: missing")
}
