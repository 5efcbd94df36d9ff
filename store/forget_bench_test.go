package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

// BenchmarkRemoveRows measures how long a removal of a run with 100,000 calls and bodies
// takes, and how long another process, with its own connection, waits at most for a write
// meanwhile.
func BenchmarkRemoveRows(b *testing.B) {
	for range b.N {
		url := "sqlite://" + filepath.Join(b.TempDir(), "store.db")
		s, other := open(b, url), open(b, url)
		_, _, err := s.CreateRun(b.Context(), record.Run{Name: "demo", ExecutionID: "x"})
		require.NoError(b, err)
		require.NoError(b, s.FinishRun(b.Context(), "demo", record.Completed, nil))
		db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(url[len("sqlite://"):]), "store.db"))
		require.NoError(b, err)
		const calls = 100_000
		for _, statement := range []string{
			`INSERT INTO exchanges SELECT 'demo', 'train', value / 1000, value / 10 % 100, 0, 1, value % 10, -1, 0, randomblob(4000), randomblob(1000), x'00' FROM numbers`,
			`INSERT INTO calls (run, kind, step, task, sample, attempt, seq, policy, id, parent, agent, version, weights, key, occurrence, prompt, completion, logprobs, extent, chain, seed, temperature, finish, parse_error,
started, duration, replayed_from, exchange, recorded, diverged_from, diverged_seq, difference, api, form, drift, server, partly_read)
SELECT 'demo', 'train', value / 1000, value / 10 % 100, 0, 1, value % 10, 'main', 'id', -1, '', 0, '', value, 0, randomblob(400), randomblob(100), randomblob(400), 0, x'', 0, 1, 'stop', '', 0, 0, 0, '', 0, 0, 0, '', '', x'', 0, '', 0 FROM numbers`,
		} {
			_, err := db.ExecContext(b.Context(), fmt.Sprintf(`WITH RECURSIVE numbers (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM numbers WHERE value < %d) `, calls-1)+statement)
			require.NoError(b, err)
		}
		require.NoError(b, db.Close())
		r, err := s.Run(b.Context(), "demo")
		require.NoError(b, err)
		_, _, err = s.BeginForgetting(b.Context(), r, record.Forgotten{Run: "demo", What: record.ForgottenRun})
		require.NoError(b, err)

		write := func(longest *time.Duration) {
			at := time.Now()
			require.NoError(b, other.PutEvaluation(b.Context(), record.Evaluation{Run: "other", EvaluationResult: record.EvaluationResult{Version: int(at.UnixNano())}}))
			*longest = max(*longest, time.Since(at))
		}
		var alone, longest time.Duration
		for range 2000 {
			write(&alone)
		}
		done := make(chan error)
		began := time.Now()
		go func() { done <- s.RemoveRows(b.Context(), "demo") }()
		for writing := true; writing; {
			select {
			case err := <-done:
				require.NoError(b, err)
				writing = false
			default:
				write(&longest)
			}
		}
		b.ReportMetric(float64(alone.Milliseconds()), "ms-longest-alone")
		b.ReportMetric(float64(longest.Milliseconds()), "ms-longest-wait")
		b.ReportMetric(calls/time.Since(began).Seconds(), "calls/s")
	}
}
