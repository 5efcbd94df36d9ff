package store_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		fmt.Println("error", writeUntilKilled(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// each holds a claim against both databases. The tests that use it are the
// contract of a store.
func each(t *testing.T, claim func(t *testing.T, s *store.Store)) {
	t.Helper()
	eachURL(t, func(t *testing.T, url string) { claim(t, open(t, url)) })
}

// eachURL is like each, but for claims that open the store themselves, perhaps several
// times.
func eachURL(t *testing.T, claim func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		claim(t, "sqlite://"+filepath.Join(t.TempDir(), "store.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		claim(t, pgtest.URL(t))
	})
}

// open opens the store at url until the test ends.
func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// tables opens the database at url directly, without the store.
func tables(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, source := "pgx", url
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		driver, source = "sqlite", path
	}
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func rollout(task, sample int) record.RolloutID {
	return record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: task, Sample: sample}
}

var terms = record.Terms{Policy: "main", Version: 2, RunSeed: 1<<64 - 1, Codec: "compact", Temperature: 0.7, MaxTokens: 32, MaxCalls: 8, Graded: true}

func begin(t testing.TB, s *store.Store, id record.RolloutID) record.Address {
	t.Helper()
	a, err := s.BeginAttempt(t.Context(), id, "task-x", terms, "c0ffee")
	require.NoError(t, err)
	return a
}

// call returns a call in which every field is set that does not depend on another call.
func call(a record.Address, seq int, prompt, completion []int32) record.Exchange {
	logprobs := make([]float32, len(completion))
	for i := range logprobs {
		logprobs[i] = -float32(i+1) / 3
	}
	return record.Exchange{Call: record.Call{
		Address: a, Seq: seq, ID: fmt.Sprintf("chatcmpl-%d", seq), Parent: -1, Agent: "writer", Policy: "main", Version: 2,
		Weights: "ab12", Key: fmt.Sprintf("key-%d", seq), Prompt: prompt, Completion: completion, Logprobs: logprobs,
		Seed: 1<<63 + uint64(seq), Temperature: 0.7, Finish: "stop", ParseError: "no such tool",
		Started: time.Date(2026, 11, 20, 1, 2, 3, 456789, time.UTC), Duration: 1234567 * time.Nanosecond,
	}, Request: json.RawMessage(`{"messages":[{"content":"é\u0000"}]}`), Response: json.RawMessage(`{"id":"x"}`)}
}

// after returns a call that continues p with more prompt.
func after(p record.Exchange, seq int, more, completion []int32) record.Exchange {
	prompt := append(append(append([]int32{}, p.Prompt...), p.Completion...), more...)
	c := call(p.Address, seq, prompt, completion)
	c.Parent = p.Seq
	return c
}

func appendCalls(t testing.TB, s *store.Store, calls ...record.Exchange) {
	t.Helper()
	for i := range calls {
		require.NoError(t, s.AppendCall(t.Context(), &calls[i]))
	}
}

// requireEqual compares values. It treats an empty slice like nil, and ignores when the
// store recorded a call or a batch.
func requireEqual(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(record.Call{}, "Recorded"), cmpopts.IgnoreFields(record.Batch{}, "At")); diff != "" {
		require.Fail(t, "values differ", "-want +got\n%s", diff)
	}
}

func number(v float64) *float64 { return &v }
