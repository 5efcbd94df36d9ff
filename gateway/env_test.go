package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// sameCall compares calls, except for fields that may differ between two writes of the
// same call.
var sameCall = cmpopts.IgnoreFields(record.Call{}, "Started", "Duration", "Recorded", "Divergence")

// memory is a journal that lasts until the process ends. It passes the same contract as
// the durable ones.
type memory struct {
	mu       sync.Mutex
	attempts map[record.Address]record.Attempt
	calls    map[record.Address][]record.Exchange
	rewards  map[record.Address]map[string]record.Reward
	events   map[record.Address][]record.Event
	spans    map[record.Address][]record.Span
	refusals map[record.Address][]record.Refusal
	// refuse is called before each AddRefusal, and may return an error for it.
	refuse  func(context.Context) error
	reads   int // of attempts
	recalls int // of earlier attempts' calls
	// before and after are called around each AppendCall, and may return an error for it.
	before, after func() error
}

func newMemory() *memory {
	return &memory{
		attempts: map[record.Address]record.Attempt{}, calls: map[record.Address][]record.Exchange{},
		rewards: map[record.Address]map[string]record.Reward{}, events: map[record.Address][]record.Event{},
		spans: map[record.Address][]record.Span{}, refusals: map[record.Address][]record.Refusal{},
	}
}

func (m *memory) Begin(a record.Attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts[a.Address] = a
}

func (m *memory) Seal(address record.Address, outcome record.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.attempts[address]
	a.Outcome, a.Ended = outcome, start
	m.attempts[address] = a
}

func (m *memory) Attempt(_ context.Context, address record.Address) (record.Attempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	a, ok := m.attempts[address]
	if !ok {
		return a, fmt.Errorf("attempt %s: %w", address, record.ErrNotFound)
	}
	return a, nil
}

func (m *memory) AttemptEnd(_ context.Context, address record.Address) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.attempts[address]
	later := address
	later.Attempt++
	if _, replaced := m.attempts[later]; replaced && a.Outcome == record.OutcomeRunning {
		return start, nil
	}
	if !ok {
		return time.Time{}, fmt.Errorf("attempt %s: %w", address, record.ErrNotFound)
	}
	return a.Ended, nil
}

// writable reports whether the attempt is the last of its rollout and open.
func (m *memory) writable(address record.Address) error {
	a, ok := m.attempts[address]
	if !ok {
		return fmt.Errorf("attempt %s: %w", address, record.ErrNotFound)
	}
	later := address
	later.Attempt++
	if _, replaced := m.attempts[later]; replaced || a.Outcome != record.OutcomeRunning {
		return fmt.Errorf("attempt %s: %w", address, record.ErrFenced)
	}
	return nil
}

func (m *memory) AppendCall(ctx context.Context, c *record.Exchange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.before != nil {
		if err := m.before(); err != nil {
			return err
		}
	}
	if err := m.writable(c.Address); err != nil {
		return err
	}
	if c.Completion[0] == poison {
		return errors.New("disk on fire")
	}
	calls := m.calls[c.Address]
	if c.Seq < len(calls) && cmp.Equal(calls[c.Seq], *c, sameCall) {
		return nil
	}
	if c.Seq != len(calls) {
		return fmt.Errorf("call %d of %s: %w", c.Seq, c.Address, record.ErrConflict)
	}
	for _, other := range calls {
		if other.Key == c.Key && other.Occurrence == c.Occurrence {
			return fmt.Errorf("call %s/%d of %s: %w", c.Key, c.Occurrence, c.Address, record.ErrConflict)
		}
	}
	kept := *c
	kept.Recorded = start
	m.calls[c.Address] = append(calls, kept)
	if m.after != nil {
		return m.after()
	}
	return nil
}

func (m *memory) Exchanges(_ context.Context, address record.Address) ([]record.Exchange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]record.Exchange{}, m.calls[address]...), nil
}

func (m *memory) EarlierExchanges(_ context.Context, address record.Address) ([]record.Exchange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recalls++
	var out []record.Exchange
	for n := 1; n < address.Attempt; n++ {
		for _, c := range m.calls[record.Address{RolloutID: address.RolloutID, Attempt: n}] {
			if c.ReplayedFrom == 0 {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

func (m *memory) PutReward(_ context.Context, r record.Reward) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(r.Address); err != nil {
		return err
	}
	all := m.rewards[r.Address]
	if all == nil {
		all = map[string]record.Reward{}
		m.rewards[r.Address] = all
	}
	key := strings.TrimSuffix(r.Name+" of "+r.CallID, " of ")
	switch old, ok := all[key]; {
	case !ok || r.Emitted.After(old.Emitted) && !old.Emitted.IsZero():
		all[key] = r
	case r.Emitted.IsZero() && old.Value != r.Value:
		return fmt.Errorf("reward %q of %s: %w", r.Name, r.Address, record.ErrConflict)
	}
	return nil
}

func (m *memory) PutEvent(_ context.Context, e record.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(e.Address); err != nil {
		return err
	}
	e.Seq = len(m.events[e.Address])
	m.events[e.Address] = append(m.events[e.Address], e)
	return nil
}

func (m *memory) PutSpans(_ context.Context, address record.Address, spans []record.Span) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.attempts[address]; !ok {
		return fmt.Errorf("attempt %s: %w", address, record.ErrNotFound)
	}
	for _, p := range spans {
		same := func(other record.Span) bool { return other.Trace == p.Trace && other.ID == p.ID }
		if !slices.ContainsFunc(m.spans[address], same) {
			m.spans[address] = append(m.spans[address], p)
		}
	}
	return nil
}

func (m *memory) AddRefusal(ctx context.Context, r record.Refusal) error {
	if m.refuse != nil {
		if err := m.refuse(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.attempts[r.Address]; !ok {
		return fmt.Errorf("attempt %s: %w", r.Address, record.ErrNotFound)
	}
	all := m.refusals[r.Address]
	at := slices.IndexFunc(all, func(old record.Refusal) bool { return old.Code == r.Code })
	if at < 0 {
		at, all = len(all), append(all, record.Refusal{Address: r.Address, Code: r.Code})
	}
	all[at].Message, all[at].Count = r.Message, all[at].Count+1
	m.refusals[r.Address] = all
	return nil
}

func (m *memory) Refusals(_ context.Context, address record.Address) ([]record.Refusal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refusals[address]), nil
}

// script is a sampler that gives the replies that it was told, or "<seed>" when it has
// none left.
type script struct {
	mu      sync.Mutex
	replies [][]int32
	asked   []model.DecodeRequest
	version []model.VersionID
	// gate, if set, is called outside the lock before each reply, beforeToken before each
	// token.
	gate        func(ctx context.Context) error
	beforeToken func(ctx context.Context, n int) error
	// constrain, if set, takes the place of dialog.Constrain.
	constrain model.Constrain
}

func say(parts ...any) []int32 {
	var ids []int32
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			ids = append(ids, tokenizer.Bytes{}.Encode(p)...)
		case int32:
			ids = append(ids, p)
		}
	}
	return ids
}

func (s *script) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	s.mu.Lock()
	s.asked, s.version = append(s.asked, r), append(s.version, v)
	reply := say(fmt.Sprint(r.Seed%1000), tokenizer.End)
	if len(s.replies) > 0 {
		reply, s.replies = s.replies[0], s.replies[1:]
	}
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		if err := gate(ctx); err != nil {
			return model.Completion{}, "", err
		}
	}
	return s.sampleTokens(ctx, r, reply)
}

func (s *script) requests() []model.DecodeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]model.DecodeRequest{}, s.asked...)
}

const (
	key = "sk-attempt-1"
	// poison begins a reply that memory can't record.
	poison = int32(32 + '!')
)

var (
	address = record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: 17, Sample: 2}, Attempt: 1}
	terms   = record.Terms{Policy: "main", Version: 2, RunSeed: 42, Codec: "compact", Temperature: 1, MaxTokens: 32}
	start   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
)

func hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// testEnv is a gateway with one attempt begun, behind a real server.
type testEnv struct {
	*memory
	*script
	url    string // of the gateway
	config gateway.Config
}

func newTestEnv(t *testing.T, change func(*record.Attempt), configure ...func(*gateway.Config)) *testEnv {
	t.Helper()
	s := newUnservedEnv(change, configure...)
	s.restart(t)
	return s
}

// newUnservedEnv is a testEnv without its server.
func newUnservedEnv(change func(*record.Attempt), configure ...func(*gateway.Config)) *testEnv {
	s := &testEnv{memory: newMemory(), script: &script{}}
	attempt := record.Attempt{Address: address, Terms: terms, KeyHash: hash(key), TaskID: "t17", Begun: start}
	if change != nil {
		change(&attempt)
	}
	s.Begin(attempt)
	s.config = gateway.Config{Journal: s.memory, Sampler: s.script, Now: func() time.Time { return start }}
	for _, c := range configure {
		c(&s.config)
	}
	return s
}

// restart starts a new gateway, which has nothing in memory, on the same journal.
func (s *testEnv) restart(t *testing.T) {
	t.Helper()
	s.serve(t, gateway.New(s.config))
}

func (s *testEnv) serve(t *testing.T, g *gateway.Gateway) {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	s.url = server.URL
}

func (s *testEnv) base() string { return s.url + "/r/" + address.String() }

type answer struct {
	status int
	header http.Header
	body   string
}

// post sends body with the attempt's key; headers are name, value pairs.
func (s *testEnv) post(t *testing.T, url, body string, headers ...string) answer {
	t.Helper()
	a, err := s.try(t.Context(), http.MethodPost, url, body, headers...)
	require.NoError(t, err)
	return a
}

func (s *testEnv) chat(t *testing.T, body string, headers ...string) answer {
	t.Helper()
	return s.post(t, s.base()+"/v1/chat/completions", body, headers...)
}

func (s *testEnv) try(ctx context.Context, method, url, body string, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(b)}, errors.Join(err, response.Body.Close())
}

// recorded returns the calls of the attempt that the journal has.
func (s *testEnv) recorded(t *testing.T) []record.Exchange {
	t.Helper()
	calls, err := s.Exchanges(t.Context(), address)
	require.NoError(t, err)
	return calls
}

// content returns the text of a reply.
func content(t *testing.T, body string) string {
	t.Helper()
	var reply openai.ChatCompletionResponse
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	return reply.Choices[0].Message.Content
}

func ask(text string) string {
	return fmt.Sprintf(`{"model":"any","messages":[{"role":"user","content":%q}]}`, text)
}
