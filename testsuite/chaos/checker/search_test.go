package checker_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// soundSearch returns the evidence of a search in which nothing went wrong: the seed is
// measured, and two candidates are proposed, tried and measured. The first of them wins.
func soundSearch(run string) checker.SearchEvidence {
	e := checker.SearchEvidence{
		Records: checker.SearchRecords{
			Run: run, Status: "completed", Budget: checker.Budget{Minibatch: 4, Validation: 6, Reflections: 3}, Promoted: 1,
			Versions: []checker.PromptVersion{
				{Number: 0, Parent: -1, Prompts: "p0", Candidate: "c0"}, {Number: 1, Parent: 0, Prompts: "p1", Candidate: "c1"},
			},
			Decisions:   []checker.GateDecision{{ID: "first", Before: -1}, {ID: "promote", Candidate: 1, Evidence: "{}"}},
			Evaluations: []checker.Evaluation{{Kind: "gate", Version: 1, Rollouts: 2, Mean: 0.5}},
		},
		History: checker.History{Completed: true},
	}
	r := &e.History.Search
	r.Promoted, r.Search.Spent, r.SearchEnd.Version, r.SearchEnd.Prompts = 1, checker.Budget{Minibatch: 4, Validation: 6, Reflections: 2}, 1, "p1"
	addMeasured(&e, "validation", "p0")
	for _, prompts := range []string{"p1", "p2"} {
		addReflected(&e)
		addMeasured(&e, "minibatch", prompts)
		addMeasured(&e, "validation", prompts)
	}
	return e
}

// addMeasured adds an evaluation on two tasks, with an attempt each, each with a call.
func addMeasured(e *checker.SearchEvidence, kind, prompts string) {
	n := len(e.Records.Answers)
	a := checker.SearchAnswer{Number: n, Request: fmt.Sprintf("request %d", n)}
	for task := range 2 {
		reward := float64(task)
		address := checker.RolloutAddress{Kind: kind, Step: n, Task: task}
		a.Results = append(a.Results, checker.TaskResult{Task: task, Score: &reward, Attempts: []checker.TaskAttempt{
			{Trace: fmt.Sprintf("%s/%s-%d/%d/0/1", e.Records.Run, kind, n, task), Reward: &reward},
		}})
		e.Records.Attempts = append(e.Records.Attempts, checker.SearchAttempt{
			RolloutAddress: address, Number: 1, Outcome: "completed", Reward: &reward, Prompts: prompts,
		})
		seed := uint64(2 * (10*n + task))
		e.Records.Calls = append(e.Records.Calls, checker.Call{RolloutAddress: address, Attempt: 1, Seed: seed, Recorded: second(10*n + 1)})
		e.Samples = append(e.Samples, checker.Sample{Run: e.Records.Run, Seed: seed / 2, Asked: second(10 * n)})
	}
	e.Records.Answers = append(e.Records.Answers, a)
}

// addReflected adds a question to the reflector, whose reply was recorded a second later.
func addReflected(e *checker.SearchEvidence) {
	n := len(e.Records.Answers)
	a := checker.SearchAnswer{Number: n, Request: fmt.Sprintf("request %d", n), Reflection: fmt.Sprintf("%s key %d", e.Records.Run, n), Text: fmt.Sprint("text ", n)}
	q := checker.Question{Run: e.Records.Run, Digest: fmt.Sprint("question ", n), Asked: second(10 * n), Model: fmt.Sprint("model ", n), Text: "It is: " + a.Text}
	e.Questions = append(e.Questions, q)
	e.Records.Reflections = append(e.Records.Reflections, checker.Reflection{Key: a.Reflection, Request: a.Request, Model: q.Model, Text: q.Text, At: second(10*n + 1)})
	e.Records.Answers = append(e.Records.Answers, a)
}

func TestASoundSearchHasNothingWrong(t *testing.T) {
	t.Parallel()
	e := soundSearch("chaos")
	require.Equal(t, checker.Findings{
		Run: "chaos", Completed: true, Attempts: 10, CallsRecorded: 10, Reflections: 2, Spent: checker.Budget{Minibatch: 4, Validation: 6, Reflections: 2},
	}, checker.CheckSearch(e))
	require.Empty(t, checker.DifferSearch(soundSearch("calm"), e))
}

func TestEveryViolationOfASearchIsFound(t *testing.T) {
	t.Parallel()
	unnoticed, err := checker.Unnoticed(soundSearch("calm"), soundSearch("chaos"))
	require.NoError(t, err)
	require.Empty(t, unnoticed)

	e := soundSearch("chaos")
	e.Records.Versions = e.Records.Versions[:1]
	unnoticed, err = checker.Unnoticed(soundSearch("calm"), e)
	require.NoError(t, err)
	require.Len(t, unnoticed, 1, "nothing can be planted in a search without a winner")
}

func TestAReplyMayGetLostWithTheWorkerThatAsked(t *testing.T) {
	t.Parallel()
	e := soundSearch("chaos")
	lost := e.Questions[0]
	lost.Model, lost.Asked = "lost", lost.Asked.Add(-time.Second)
	e.Questions = append(e.Questions, lost)
	require.Contains(t, checker.CheckSearch(e).Wrong, "1 replies were lost, and workers that ask had 0 faults")
	e.WorkerFaults = 1
	f := checker.CheckSearch(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, 1, f.ReflectionsLost)

	e.Questions[2].Asked = e.Records.Reflections[0].At.Add(time.Second)
	require.Equal(t, 1, checker.CheckSearch(e).ReflectedAgain)
	e.WorkerHangs = []checker.Hang{{From: e.Records.Reflections[0].At.Add(-time.Second), Until: e.Questions[2].Asked}}
	require.Zero(t, checker.CheckSearch(e).ReflectedAgain, "the worker was frozen before it could ask")
}

func TestAttemptsThatAFaultEndedCountForNothing(t *testing.T) {
	t.Parallel()
	e := soundSearch("chaos")
	again := e.Records.Attempts[0]
	again.Number = 2
	e.Records.Attempts = append(e.Records.Attempts, again)
	e.Records.Attempts[0].Outcome, e.Records.Attempts[0].Reward = "infra_fault", nil
	e.Records.Answers[0].Results[0].Attempts[0].Trace = "chaos/validation-0/0/0/2"
	require.Empty(t, checker.CheckSearch(e).Wrong)
	require.Empty(t, checker.DifferSearch(soundSearch("calm"), e), "numbers of attempts may differ")
}

// TestASearchIsReadFromBothDatabases writes through the product's store and reads by the
// checker's own statements.
func TestASearchIsReadFromBothDatabases(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "fulgurite.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, before := url(t), time.Now()
			fillSearch(t, at)
			d, err := checker.OpenDatabase(at)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			r, err := d.SearchRecords(t.Context(), "search")
			require.NoError(t, err)
			require.WithinRange(t, r.Begun, before, time.Now())
			r.Begun = time.Time{}
			reward := 0.5
			address := checker.RolloutAddress{Kind: "validation", Step: 0, Task: 3}
			require.Empty(t, cmp.Diff(checker.SearchRecords{
				Run: "search", Status: "running", Execution: "execution", Ended: time.Unix(0, 0), Start: "other@2", Budget: checker.Budget{Minibatch: 1, Validation: 2, Reflections: 3}, Promoted: 1,
				Answers: []checker.SearchAnswer{
					{Number: 0, Request: "seed", At: time.Unix(0, 5), Results: []checker.TaskResult{
						{Task: 3, Score: &reward, Attempts: []checker.TaskAttempt{{Trace: "search/validation-0/3/0/1", Reward: &reward}}},
					}},
					{Number: 1, Request: "p0.reflect", Reflection: "key", At: time.Unix(0, 6), Text: "better"},
				},
				Reflections: []checker.Reflection{{Key: "key", Request: "p0.reflect", Model: "synthetic-1", Text: "It is better.", At: time.Unix(0, 7)}},
				Versions:    []checker.PromptVersion{{Number: 0, Parent: -1, Prompts: "p0", Candidate: "c0"}},
				Decisions:   []checker.GateDecision{{ID: "d", Candidate: 1, Before: -1, Reason: "first", Evidence: "{}"}},
				Attempts:    []checker.SearchAttempt{{RolloutAddress: address, Number: 1, Outcome: "completed", Reward: &reward, Prompts: "p0"}},
				Calls:       []checker.Call{},
			}, r, cmp.Transformer("empty", func(c []checker.Call) []checker.Call { return append([]checker.Call{}, c...) })))
			_, err = d.SearchRecords(t.Context(), "nobody")
			require.ErrorContains(t, err, "read store of run nobody")
		})
	}
}

func fillSearch(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	s, err := store.Open(ctx, url, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(ctx))
	_, _, err = s.CreateRun(ctx, record.Run{
		Name: "search", ExecutionID: "execution", Spec: []byte(`{"prompts": {"version": "other@2"}, "optimizer": {"budget": {"minibatch": 1, "validation": 2, "reflections": 3}}}`), Status: record.Running,
	})
	require.NoError(t, err)
	for _, a := range []record.SearchAnswer{
		{Run: "search", Request: "seed", Answer: []byte(`{"request": "seed", "results": [{"task": 3, "score": 0.5, "attempts": [{"trace": "search/validation-0/3/0/1", "reward": 0.5}]}]}`), At: time.Unix(0, 5)},
		{Run: "search", Request: "p0.reflect", Answer: []byte(`{"request": "p0.reflect", "text": "better"}`), Reflection: "key", At: time.Unix(0, 6)},
	} {
		_, _, err := s.PutSearchAnswer(ctx, a)
		require.NoError(t, err)
	}
	_, _, err = s.PutReflection(ctx, record.Reflection{
		Key: "key", Run: "search", Request: "p0.reflect", Reply: record.ReflectionReply{Model: "synthetic-1", Text: "It is better."}, At: time.Unix(0, 7),
	})
	require.NoError(t, err)
	require.NoError(t, s.PutPromptVersion(ctx, record.PromptVersion{Run: "search", Parent: -1, Prompts: "p0", Candidate: "c0"}))
	id := record.RolloutID{Run: "search", Kind: record.Validation, Task: 3}
	address, err := s.BeginAttempt(ctx, id, "t3", record.Terms{Policy: "main", Prompts: "p0"}, "hash")
	require.NoError(t, err)
	reward := 0.5
	require.NoError(t, s.SealAttempt(ctx, record.Attempt{Address: address, Outcome: record.OutcomeCompleted, Reward: &reward}))
	require.NoError(t, s.Promote(ctx, record.Promotion{
		Run: "search", Policy: record.PromptsPolicy, DecisionID: "d", Version: 1, Previous: -1, Reason: "first", Evidence: []byte("{}"),
	}))
}
