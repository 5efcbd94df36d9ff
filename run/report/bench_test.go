package report_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// One iteration is the report of 200 steps of 64 tasks with 8 samples: 102 400
// attempts with a call each, of which one in a hundred was lost.
func BenchmarkReport(b *testing.B) {
	const steps, tasks, samples = 200, 64, 8
	run := newEmptyRun(b, spec.Training{Steps: steps, TasksPerStep: tasks, SamplesPerTask: samples})
	run.samples = samples
	db, err := sql.Open("sqlite", run.path)
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close()) }()
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	request := make([]byte, 500)
	for step := 1; step <= steps; step++ {
		for task := (step - 1) * tasks; task < step*tasks; task++ {
			for sample := range samples {
				a := at(step, record.Train, task, sample, 1)
				if (task*samples+sample)%100 == 0 {
					run.insert(tx, a, "", request)
					a.Attempt = 2
				}
				run.insert(tx, a, record.OutcomeCompleted, request)
				_, err = tx.ExecContext(b.Context(), `INSERT INTO rollouts VALUES ('demo', 'train', $1, $2, $3, $4)`, step, task, sample, a.Attempt)
				require.NoError(b, err)
				run.batches[step] = append(run.batches[step], a)
			}
		}
	}
	require.NoError(b, tx.Commit())
	r := run.report()
	require.True(b, r.OK(), "%q", r.Faults[:min(3, len(r.Faults))])
	require.Equal(b, steps*tasks, r.Prompts.Trained)
	require.Equal(b, 1024, r.Interruptions.Count)
	for b.Loop() {
		_, err := report.Of(b.Context(), run.store, run.blobs, "demo", "main")
		require.NoError(b, err)
	}
}

// insert puts an attempt and a call on record faster than one by one.
func (run *testRun) insert(tx *sql.Tx, a record.Address, outcome record.Outcome, request []byte) {
	reward := sql.NullFloat64{Float64: 0.5, Valid: outcome != ""}
	_, err := tx.ExecContext(run.t.Context(), `INSERT INTO attempts (run, kind, step, task, sample, attempt, task_id, policy, version, terms, key_hash,
outcome, reward, result, error, calls, tokens, begun, ended) VALUES ('demo', 'train', $1, $2, $3, $4, $5, 'main', 0, '{}', '', $6, $7, '', '', 1, 2, $8, 0)`,
		a.Step, a.Task, a.Sample, a.Attempt, run.task(a.RolloutID).ID, string(outcome), reward, int64(a.Attempt)*1e9)
	require.NoError(run.t, err)
	_, err = tx.ExecContext(run.t.Context(), `INSERT INTO calls (run, kind, step, task, sample, attempt, seq, policy, id, parent, agent, version, weights, key, occurrence,
prompt, completion, logprobs, extent, chain, seed, temperature, finish, parse_error, request, response, started, duration)
VALUES ('demo', 'train', $1, $2, $3, $4, 0, 'main', '', -1, '', 0, '', 'k', 0, $5, $5, $5, 2, $5, 0, 1, 'stop', '', $6, $6, $7, 0)`,
		a.Step, a.Task, a.Sample, a.Attempt, []byte{1, 2}, request, int64(a.Attempt)*1e9)
	require.NoError(run.t, err)
}
