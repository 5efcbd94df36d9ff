package track_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
	"github.com/fulgurite/fulgurite/store"
)

// begun is when the runs of the tests began.
var begun = time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)

// history writes a run as a training does, one record after the other.
type history struct {
	t     testing.TB
	store *store.Store
	now   time.Time
	// after is called after each write.
	after func()
}

func newHistory(t testing.TB) *history {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	h := &history{t: t, store: s, now: begun, after: func() {}}
	_, _, err = s.CreateRun(t.Context(), record.Run{
		Name: "demo", WorkflowID: "demo", ExecutionID: "first", Status: record.Running, Created: begun,
		Spec: json.RawMessage(`{"agent": {"command": ["agent"], "environment": {"KEY": "secret"}}, "training": {"steps": 4}}`),
	})
	h.wrote(err)
	return h
}

func (h *history) wrote(err error) {
	h.t.Helper()
	require.NoError(h.t, err)
	h.now = h.now.Add(time.Second)
	h.after()
}

func (h *history) step(n int, metrics map[string]float64) {
	h.wrote(h.store.PutStep(h.t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: n, Batch: fmt.Sprintf("b%d", n), Metrics: metrics, At: h.now}))
}

func (h *history) evaluation(kind record.Kind, version int, mean float64, greedy *float64) {
	h.wrote(h.store.PutEvaluation(h.t.Context(), record.Evaluation{
		Run: "demo", Policy: model.DefaultPolicy, At: h.now,
		EvaluationResult: record.EvaluationResult{Kind: kind, Version: version, Tasks: 2, Rollouts: 4, Mean: mean, StdError: 0.125, Greedy: greedy},
	}))
}

func (h *history) move(id string, version, previous int, source record.Source, by string) {
	h.wrote(h.store.Promote(h.t.Context(), record.Promotion{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: id, Version: version, Previous: previous, Source: source, By: by, Reason: "because of " + id, At: h.now,
	}))
}

// train writes a run with four steps, evaluations, a warm start, and moves by the rule and by
// hand.
func (h *history) train() {
	greedy := 0.75
	_, _, err := h.store.PutVersion(h.t.Context(), model.Version{
		VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy}, Parent: -1, Manifest: "m", Weights: "w", Metrics: map[string]float64{"warm_start/loss": 2.5}, Created: h.now,
	})
	h.wrote(err)
	h.evaluation(record.Test, 0, 0.25, &greedy)
	h.evaluation(record.Gate, 0, 0.5, nil)
	h.move("gate-0", 0, -1, record.SourceGate, "")
	for n := 1; n <= 4; n++ {
		if n%2 == 0 {
			h.evaluation(record.Gate, n, 0.5+float64(n)/16, nil)
			h.move(fmt.Sprintf("gate-%d", n), n, n-2, record.SourceGate, "")
		}
		metrics := map[string]float64{"reward/mean": float64(n) / 8, "train/loss": 1 / float64(n), "reward/test/mean": 0.5, "critic/loss": 0.25, "policy/writer/advantage/mean": 0}
		if n == 3 {
			metrics[record.AllRollouts] = 0.1
		}
		h.step(n, metrics)
	}
	h.move("back", 2, 4, record.SourceRollback, "ada@host")
	h.move("pin", 4, 2, record.SourcePin, "ada@host")
	h.evaluation(record.Test, 2, 0.875, &greedy)
	h.wrote(h.store.FinishRun(h.t.Context(), "demo", record.Completed, []byte(`{}`)))
}

// line is an entry as the tests compare them.
func line(e track.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d +%g", e.Step, e.Time.Sub(begun).Seconds())
	for _, v := range e.Values {
		fmt.Fprintf(&b, " %s=%g", v.Name, v.Number)
	}
	for _, t := range e.Texts {
		fmt.Fprintf(&b, " %s=%q", t.Name, t.Text)
	}
	if e.Spec != nil {
		b.WriteString(" spec")
	}
	return b.String()
}

func lines(entries []track.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, line(e))
	}
	return out
}

func read(t testing.TB, s track.Store, has track.Position) track.News {
	t.Helper()
	news, err := track.NewReader(s, "demo").Read(t.Context(), has)
	require.NoError(t, err)
	return news
}

func TestAllNumbersOnRecordAreEntriesInTheirOrder(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.train()
	news := read(t, h.store, track.Position{})
	require.True(t, news.Ended)
	step := "critic/loss=0.25 policy/writer/advantage/mean=0"
	want := []string{
		"0 +0 spec",
		"0 +1 warm_start/loss=2.5",
		"0 +2 evaluation/test/greedy=0.75 evaluation/test/mean=0.25 evaluation/test/std_error=0.125",
		"0 +3 evaluation/gate/mean=0.5 evaluation/gate/std_error=0.125",
		`0 +4 promoted/version=0 promoted/reason="version 0 (gate): because of gate-0"`,
		"1 +5 reward=0.125 " + step + " reward/mean=0.125 reward/test/mean=0.5 train/loss=1",
		"2 +6 evaluation/gate/mean=0.625 evaluation/gate/std_error=0.125",
		`2 +7 promoted/version=2 promoted/reason="version 2 (gate): because of gate-2"`,
		"2 +8 reward=0.25 " + step + " reward/mean=0.25 reward/test/mean=0.5 train/loss=0.5",
		"3 +9 reward=0.1 " + step + " reward/all_rollouts=0.1 reward/mean=0.375 reward/test/mean=0.5 train/loss=0.3333333333333333",
		"4 +10 evaluation/gate/mean=0.75 evaluation/gate/std_error=0.125",
		`4 +11 promoted/version=4 promoted/reason="version 4 (gate): because of gate-4"`,
		"4 +12 reward=0.5 " + step + " reward/mean=0.5 reward/test/mean=0.5 train/loss=0.25",
		`4 +13 promoted/version=2 promoted/reason="version 4 (gate): because of gate-4\n\nversion 2 (rollback by ada@host): because of back"`,
		`4 +14 promoted/version=4 promoted/reason="version 4 (gate): because of gate-4\n\nversion 2 (rollback by ada@host): because of back\n\nversion 4 (pin by ada@host): because of pin"`,
		"2 +15 evaluation/test/greedy=0.75 evaluation/test/mean=0.875 evaluation/test/std_error=0.125",
	}
	require.Empty(t, cmp.Diff(want, lines(news.Entries)))
}

func TestAFollowerReadsWhatALateOneReads(t *testing.T) {
	t.Parallel()
	for every := 1; every <= 5; every++ { // how many writes there are between two reads
		h := newHistory(t)
		live := track.NewReader(h.store, "demo")
		var has track.Position
		var entries []track.Entry
		follow := func() {
			news, err := live.Read(t.Context(), has)
			require.NoError(t, err)
			for _, e := range news.Entries {
				has.Add(e.Step, e.Names())
			}
			entries = append(entries, news.Entries...)
		}
		written := 0
		h.after = func() {
			if written++; written%every == 0 {
				follow()
			}
		}
		h.train()
		follow()
		require.Empty(t, cmp.Diff(lines(read(t, h.store, track.Position{}).Entries), lines(entries)), "a read every %d writes", every)
	}
}

func TestTheNamesOfEntriesSayWhichAreMissing(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.train()
	all := read(t, h.store, track.Position{}).Entries
	var has track.Position
	for i, e := range all {
		require.Empty(t, cmp.Diff(lines(all[i:]), lines(read(t, h.store, has).Entries)), "before entry %d", i)
		has.Add(e.Step, e.Names())
		marked := track.Position{}
		marked.Add(e.Step, []string{e.Mark()})
		named := track.Position{}
		named.Add(e.Step, e.Names())
		require.Equal(t, named, marked)
	}
	require.Empty(t, read(t, h.store, has).Entries)
}

func TestAPromotionAfterOtherStepsHasTheStepAtWhichItHappened(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	for n := 1; n <= 3; n++ {
		h.step(n, map[string]float64{"reward/mean": 0})
	}
	h.move("approved", 1, -1, record.SourceGate, "ada@host")
	h.step(4, map[string]float64{"reward/mean": 0})
	entries := read(t, h.store, track.Position{Spec: true, Step: 4}).Entries
	require.Equal(t, []string{`3 +4 promoted/version=1 promoted/reason="version 1 (gate by ada@host): because of approved"`}, lines(entries))
}

func TestVersionsOfPromptsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.wrote(h.store.PutEvaluation(t.Context(), record.Evaluation{
		Run: "demo", Policy: record.PromptsPolicy, At: h.now, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: 1, Tasks: 1, Rollouts: 1, Mean: 0.5},
	}))
	h.wrote(h.store.Promote(t.Context(), record.Promotion{Run: "demo", Policy: record.PromptsPolicy, DecisionID: "p", Version: 1, Previous: -1, At: h.now}))
	news := read(t, h.store, track.Position{Spec: true})
	require.Equal(t, []string{
		"1 +1 evaluation/prompts/gate/mean=0.5 evaluation/prompts/gate/std_error=0",
		`1 +2 promoted/prompts/version=1 promoted/prompts/reason="version 1 (gate)"`,
	}, lines(news.Entries))
	require.False(t, news.Ended)
	has := track.Position{Spec: true}
	for _, e := range news.Entries {
		has.Add(e.Step, e.Names())
	}
	require.Empty(t, read(t, h.store, has).Entries)
}

func TestPoliciesThatArePromotedAloneHaveSeriesOfTheirOwn(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	_, _, err := h.store.CreateRun(t.Context(), record.Run{
		Name: "pair", WorkflowID: "pair", ExecutionID: "e", Status: record.Running, Created: begun,
		Spec: json.RawMessage(`{"policies": {"checker": {}, "writer": {"match": [{"agent": "w"}]}, "rest": {"frozen": true, "match": [{"agent": "r"}]}}, "promotion": {"alone": true}}`),
	})
	h.wrote(err)
	ctx := t.Context()
	evaluation := func(policy string, version int, mean float64) {
		h.wrote(h.store.PutEvaluation(ctx, record.Evaluation{
			Run: "pair", Policy: policy, At: h.now, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: version, Tasks: 1, Rollouts: 1, Mean: mean},
		}))
	}
	move := func(policy, id string, version, previous int, source record.Source) {
		h.wrote(h.store.Promote(ctx, record.Promotion{Run: "pair", Policy: policy, DecisionID: id, Version: version, Previous: previous, Source: source, At: h.now}))
	}
	evaluation(model.DefaultPolicy, 0, 0.125)
	for _, policy := range []string{"checker", "rest", "writer"} {
		move(policy, "gate-0", 0, -1, record.SourceGate)
	}
	evaluation("checker", 1, 0.25)
	move("checker", "gate-1", 1, 0, record.SourceGate)
	evaluation("writer", 1, 0.5)
	move("writer", "gate-1", 1, 0, record.SourceGate)
	move("writer", "back", 0, 1, record.SourceRollback)

	reader := track.NewReader(h.store, "pair")
	news, err := reader.Read(ctx, track.Position{Spec: true})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]string{
		"0 +2 evaluation/gate/mean=0.125 evaluation/gate/std_error=0",
		`0 +3 promoted/checker/version=0 promoted/checker/reason="version 0 (gate)"`,
		`0 +4 promoted/rest/version=0 promoted/rest/reason="version 0 (gate)"`,
		`0 +5 promoted/writer/version=0 promoted/writer/reason="version 0 (gate)"`,
		"1 +6 evaluation/checker/gate/mean=0.25 evaluation/checker/gate/std_error=0",
		`1 +7 promoted/checker/version=1 promoted/checker/reason="version 1 (gate)"`,
		"1 +8 evaluation/writer/gate/mean=0.5 evaluation/writer/gate/std_error=0",
		`1 +9 promoted/writer/version=1 promoted/writer/reason="version 1 (gate)"`,
		`1 +10 promoted/writer/version=0 promoted/writer/reason="version 1 (gate)\n\nversion 0 (rollback)"`,
	}, lines(news.Entries)))
	has := track.Position{Spec: true}
	for i, e := range news.Entries {
		rest, err := reader.Read(ctx, has)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(lines(news.Entries[i:]), lines(rest.Entries)), "the names say what is missing")
		has.Add(e.Step, e.Names())
	}
	require.Equal(t, map[string]int{"checker": 2, "rest": 1, "writer": 3}, has.Moves)
}

func TestTheSpecIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	text := string(read(t, h.store, track.Position{}).Entries[0].Spec)
	require.Contains(t, text, `"steps": 4`)
	require.NotContains(t, text, "secret")
}

// awayStore is a store that can't be read at times.
type awayStore struct {
	track.Store
	away  func(what string) bool
	reads atomic.Int64 // of steps
}

var errAway = errors.New("the store is away")

func (s *awayStore) Run(ctx context.Context, name string) (record.Run, error) {
	if s.away("run") {
		return record.Run{}, errAway
	}
	return s.Store.Run(ctx, name)
}

func (s *awayStore) Evaluations(ctx context.Context, run string) ([]record.Evaluation, error) {
	if s.away("evaluations") {
		return nil, errAway
	}
	return s.Store.Evaluations(ctx, run)
}

func (s *awayStore) StepsAfter(ctx context.Context, run, policy string, after int) ([]record.Step, error) {
	steps, err := s.Store.StepsAfter(ctx, run, policy, after)
	s.reads.Add(int64(len(steps)))
	return steps, err
}

// listWriter keeps entries in memory.
type listWriter struct {
	has     track.Position
	entries []track.Entry
	fail    error
}

func (w *listWriter) Position() track.Position { return w.has.Clone() }

func (w *listWriter) Write(_ context.Context, entries []track.Entry) error {
	if w.fail != nil {
		return w.fail
	}
	for _, e := range entries {
		w.has.Add(e.Step, e.Names())
	}
	w.entries = append(w.entries, entries...)
	return nil
}

func TestAStoreThatIsAwayIsWaitedForAndNothingIsLost(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.train()
	asked := map[string]int{}
	s := &awayStore{Store: h.store, away: func(what string) bool {
		asked[what]++
		return asked[what] <= 2 // "evaluations" fails after the steps have been read
	}}
	w := &listWriter{}
	var said []string
	err := track.Follow(t.Context(), track.NewReader(s, "demo"), w, track.Options{Every: time.Millisecond, Away: func(err error) { said = append(said, fmt.Sprint(err)) }})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(lines(read(t, h.store, track.Position{}).Entries), lines(w.entries)))
	require.Equal(t, []string{"read run demo: the store is away", "<nil>"}, said)
	require.EqualValues(t, 4, s.reads.Load(), "each step is read once")
}

// unreadWriter can't read the store at times, after it has written some of the entries.
type unreadWriter struct {
	listWriter
	failures int
}

func (w *unreadWriter) Write(ctx context.Context, entries []track.Entry) error {
	if w.failures > 0 {
		w.failures--
		if err := w.listWriter.Write(ctx, entries[:1]); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", track.ErrRead, errAway)
	}
	return w.listWriter.Write(ctx, entries)
}

func TestAWriterThatCannotReadTheStoreIsWaitedForAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.train()
	w := &unreadWriter{failures: 2}
	var said []bool
	o := track.Options{Every: time.Millisecond, Away: func(err error) { said = append(said, err != nil) }}
	require.NoError(t, track.Follow(t.Context(), track.NewReader(h.store, "demo"), w, o))
	require.Empty(t, cmp.Diff(lines(read(t, h.store, track.Position{}).Entries), lines(w.entries)))
	require.Equal(t, []bool{true, false}, said[len(said)-2:])
	once := &unreadWriter{failures: 1}
	require.ErrorIs(t, track.Follow(t.Context(), track.NewReader(h.store, "demo"), once, track.Options{}), track.ErrRead)
}

func TestARecordThatIsWrittenOnceDoesNotWait(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.step(1, map[string]float64{"reward/mean": 1})
	w := &listWriter{}
	require.NoError(t, track.Follow(t.Context(), track.NewReader(h.store, "demo"), w, track.Options{}))
	require.Len(t, w.entries, 2)
	away := &awayStore{Store: h.store, away: func(string) bool { return true }}
	require.ErrorIs(t, track.Follow(t.Context(), track.NewReader(away, "demo"), w, track.Options{}), errAway)
}

func TestAFollowerReadsEachStepOnceAndEndsWithItsRun(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.step(1, map[string]float64{"reward/mean": 1})
	s := &awayStore{Store: h.store, away: func(string) bool { return false }}
	w := &listWriter{}
	seen := make(chan int, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- track.Follow(t.Context(), track.NewReader(s, "demo"), w, track.Options{Every: time.Millisecond, Wrote: func(e []track.Entry) { seen <- e[len(e)-1].Step }})
	}()
	require.Equal(t, 1, <-seen)
	for n := 2; n <= 20; n++ {
		h.step(n, map[string]float64{"reward/mean": 1})
		require.Equal(t, n, <-seen)
	}
	require.NoError(t, h.store.FinishRun(t.Context(), "demo", record.Failed, []byte(`{}`)))
	require.NoError(t, <-ended)
	require.EqualValues(t, 20, s.reads.Load())
	require.Empty(t, cmp.Diff(lines(read(t, h.store, track.Position{}).Entries), lines(w.entries)))
}

func TestATrackerThatFailsEndsTheFollower(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	full := errors.New("the disk is full")
	err := track.Follow(t.Context(), track.NewReader(h.store, "demo"), &listWriter{fail: full}, track.Options{Every: time.Millisecond})
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "track run demo: ")
	ctx, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, track.Follow(ctx, track.NewReader(h.store, "demo"), &listWriter{}, track.Options{Every: time.Millisecond}), context.Canceled)
}

func TestEntriesKeepTheirOrderIfClocksDiffer(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.step(1, map[string]float64{"reward/mean": 1})
	h.now = begun.Add(-time.Hour) // another machine goes on
	h.move("a", 1, -1, record.SourceGate, "")
	h.step(2, map[string]float64{"reward/mean": 1})
	h.now = begun.Add(-2 * time.Hour)
	h.move("b", 2, 1, record.SourceGate, "")
	var has track.Position
	entries := read(t, h.store, has).Entries
	var steps, moved []int
	for _, e := range entries {
		if slices.Contains(e.Names(), "promoted/version") {
			moved = append(moved, e.Step)
		} else {
			steps = append(steps, e.Step)
		}
	}
	require.Equal(t, []int{0, 1, 2}, steps)
	require.Equal(t, []int{1, 2}, moved)
}

// busyStore is a store in which a step is recorded while a reader reads.
type busyStore struct {
	track.Store
	during func()
}

func (s *busyStore) Evaluations(ctx context.Context, run string) ([]record.Evaluation, error) {
	s.during()
	return s.Store.Evaluations(ctx, run)
}

func TestAStepThatIsRecordedWhileAReaderReadsIsInItsPlace(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	n := 0
	s := &busyStore{Store: h.store, during: func() {
		if n++; n <= 3 {
			h.step(n, map[string]float64{"reward/mean": 1})
			h.evaluation(record.Gate, n, 0.5, nil)
		}
	}}
	got := read(t, s, track.Position{}).Entries
	require.Empty(t, cmp.Diff(lines(read(t, h.store, track.Position{}).Entries), lines(got)))
	require.Len(t, got, 7)
}
