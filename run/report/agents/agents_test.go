package agents_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the databases of the tests

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report/agents"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

const (
	cats  = "SELECT name FROM animal WHERE legs = 4"
	count = "SELECT count(*) FROM animal"
)

// evaluated is a run whose test split has two tasks, each about a database of its own.
// Each was tried twice, and once at temperature 0.
type evaluated struct {
	*testing.T
	db        *store.Store
	source    agents.Source
	databases [2]string
}

func newRun(t *testing.T, grader string) *evaluated {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(ctx))
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	graders := &grading.Graders{}
	t.Cleanup(func() { require.NoError(t, graders.Close()) })
	e := &evaluated{t, db, agents.Source{Store: db, Blobs: blobs, Graders: graders, Run: "demo", Policy: "main"}, [2]string{}}
	var list []tasks.Task
	for i, gold := range []string{cats, count} {
		e.databases[i] = zoo(t)
		list = append(list, tasks.Task{ID: fmt.Sprintf("t%d", i), Input: "question", Answer: gold, Metadata: map[string]any{"database": e.databases[i]}})
	}
	text, err := tasks.Encode(list)
	require.NoError(t, err)
	digest, err := blobs.Put(ctx, text)
	require.NoError(t, err)
	_, _, err = db.CreateRun(ctx, record.Run{
		Name: "demo", WorkflowID: "demo", ExecutionID: "x", Spec: json.RawMessage(grader), Status: record.Completed, Created: time.Now(),
		Splits: map[record.Kind]record.Split{record.Test: {Digest: digest, Count: len(list)}},
	})
	require.NoError(t, err)
	return e
}

func zoo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zoo.sqlite")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE animal (name TEXT, legs INT); INSERT INTO animal VALUES ('owl', 2), ('cat', 4)")
	require.NoError(t, err)
	return path
}

// evaluation records an evaluation of a version on the test split.
func (e *evaluated) evaluation(version int) {
	e.Helper()
	require.NoError(e, e.db.PutEvaluation(e.Context(), record.Evaluation{
		Run: "demo", Policy: "main", EvaluationResult: record.EvaluationResult{Kind: record.Test, Version: version, Tasks: 2, Rollouts: 4}, At: time.Now(),
	}))
}

// said is a call of a named agent.
type said struct {
	agent, text string
	cut         bool
	tools       bool // the request offers one
}

// attempt records an attempt at a task by a version, with its calls.
func (e *evaluated) attempt(version, task, sample int, outcome record.Outcome, reward float64, result string, calls ...said) {
	e.Helper()
	ctx := e.Context()
	address, err := e.db.BeginAttempt(ctx, record.RolloutID{Run: "demo", Kind: record.Test, Step: version, Task: task, Sample: sample}, fmt.Sprintf("t%d", task), record.Terms{Policy: "main", Version: version}, "hash")
	require.NoError(e, err)
	for i, c := range calls {
		request, finish := `{"model":"m","messages":[{"role":"user","content":"go"}]}`, "stop"
		if c.tools {
			request = `{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"run"}}]}`
		}
		if c.cut {
			finish = record.FinishLength
		}
		content, err := json.Marshal(c.text)
		require.NoError(e, err)
		require.NoError(e, e.db.AppendCall(ctx, &record.Exchange{
			Call: record.Call{
				Address: address, Seq: i, ID: fmt.Sprintf("chatcmpl-%d", i), Parent: -1, Agent: c.agent, Policy: "main", Version: version, Weights: "w", Key: fmt.Sprintf("k%d", i), Finish: finish,
				Prompt: []int32{1}, Completion: []int32{2}, Logprobs: []float32{-1},
			},
			Request: json.RawMessage(request), Response: json.RawMessage(`{"choices":[{"message":{"role":"assistant","content":` + string(content) + `}}]}`),
		}))
	}
	end := record.Attempt{Address: address, Outcome: outcome, Reward: &reward, Result: result}
	if outcome == record.InfraFault {
		end.Reward = nil
	}
	require.NoError(e, e.db.SealAttempt(ctx, end))
}

// fill records what version 0 did: an attempt of each class.
func (e *evaluated) fill() {
	fenced := "```sql\n" + cats + "\n```"
	e.evaluation(0)
	e.attempt(0, 0, 0, record.OutcomeCompleted, 0, fenced, said{agent: "writer", text: fenced, cut: true}, said{agent: "checker", text: "no"})
	e.attempt(0, 0, 1, record.OutcomeCompleted, 1, cats, said{agent: "writer", text: "SELECT name FROM animal"}, said{agent: "checker", text: "no"}, said{agent: "writer", text: cats})
	e.attempt(0, 1, 0, record.OutcomeCompleted, 0, "SELECT count(", said{agent: "writer", text: "SELECT count(", cut: true})
	e.attempt(0, 1, 1, record.AgentFailed, 0, "")
	e.attempt(0, 0, 2, record.AgentFailed, 0, "", said{agent: "writer", text: cats})
	e.attempt(0, 1, 2, record.OutcomeCompleted, 0, "SELECT 7", said{agent: "writer", text: "I run(count)", tools: true})
}

func estimate(mean, low, high float64) *evaluation.Estimate {
	return &evaluation.Estimate{Mean: mean, Low: low, High: high}
}

// With two tasks, a quarter of the draws has one of them twice, and a quarter the other.
// So an interval of 95 % reaches from one task's mean to the other's.
func TestAgentsAreGradedByThemselvesBesideTheirAttempts(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"sql"}}`)
	e.fill()
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	same := func(x float64) *evaluation.Estimate { return estimate(x, x, x) } // only one task, or two equal ones
	require.Empty(t, cmp.Diff(&agents.Report{
		Grader: "sql", Level: 0.95,
		Evaluations: []agents.Evaluation{
			{
				Split: record.Test, Attempts: 4,
				Mean: estimate(0.25, 0, 0.5), // t0 earned 0 and 1, t1 nothing
				Ends: agents.Ends{Right: 1, NoReply: 1, CutOff: 1, Prose: 1},
				Agents: []agents.Agent{
					{
						Agent: "writer", Source: "path", Attempts: 3, Replies: 4, Earned: estimate(0.25, 0, 0.5),
						First: &agents.Reply{AsWritten: same(0), WithoutProse: estimate(0.25, 0, 0.5)},
						Last:  &agents.Reply{AsWritten: estimate(0.25, 0, 0.5), WithoutProse: estimate(0.5, 0, 1)},
					},
					{
						Agent: "checker", Source: "path", Attempts: 2, Replies: 2, Earned: same(0.5),
						First: &agents.Reply{AsWritten: same(0), WithoutProse: same(0)},
						Last:  &agents.Reply{AsWritten: same(0), WithoutProse: same(0)},
					},
				},
			},
			{
				Split: record.Test, Greedy: true, Attempts: 2, Mean: same(0), Ends: agents.Ends{Failed: 1, NoToolCall: 1},
				Agents: []agents.Agent{{
					Agent: "writer", Source: "path", Attempts: 2, Replies: 2, Earned: same(0),
					First: &agents.Reply{AsWritten: estimate(0.5, 0, 1), WithoutProse: estimate(0.5, 0, 1)},
					Last:  &agents.Reply{AsWritten: estimate(0.5, 0, 1), WithoutProse: estimate(0.5, 0, 1)},
				}},
			},
		},
	}, got))
	var text bytes.Buffer
	require.NoError(t, got.WriteText(&text))
	for _, line := range []string{
		"  version 0 on test: 4 attempts, mean reward 0.250 [0.000, 0.500]",
		"    right 1 (25 %), prose around a right answer 1 (25 %), no reply 1 (25 %), cut off 1 (25 %)",
		"    agent    reply  attempts  as written            without prose         the attempts",
		"    writer   first         3  0.000 [0.000, 0.000]  0.250 [0.000, 0.500]  0.250 [0.000, 0.500]",
		"    writer   last          3  0.250 [0.000, 0.500]  0.500 [0.000, 1.000]  0.250 [0.000, 0.500]",
		"    checker  first         2  0.000 [0.000, 0.000]  0.000 [0.000, 0.000]  0.500 [0.500, 0.500]",
		"  version 0 on test, at temperature 0: 2 attempts, mean reward 0.000 [0.000, 0.000]",
		"    agent failed 1 (50 %), no tool call read 1 (50 %)",
	} {
		require.Contains(t, text.String(), line+"\n")
	}
}

func TestTheFirstThePromotedAndTheNewestVersionAreTold(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"sql"}}`)
	for version := range 4 {
		e.evaluation(version)
		e.attempt(version, 0, 0, record.OutcomeCompleted, 1, cats, said{agent: "writer", text: cats})
		e.attempt(version, 1, 0, record.OutcomeCompleted, 0, cats, said{agent: "writer", text: cats})
	}
	e.attempt(3, 0, 1, record.InfraFault, 0, "", said{agent: "writer", text: "nothing"}) // does not count
	require.NoError(t, e.db.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "d", Version: 2, Previous: -1}))
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	var versions []int
	for _, one := range got.Evaluations {
		versions = append(versions, one.Version)
		require.Equal(t, agents.Ends{Right: 1, Wrong: 1}, one.Ends)
	}
	require.Equal(t, []int{0, 2, 3}, versions)
}

func TestADatabaseThatIsGoneIsNamedAndTheRestIsGraded(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"sql"}}`)
	e.fill()
	require.NoError(t, os.Remove(e.databases[1]))
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	sampled := got.Evaluations[0]
	require.Equal(t, agents.Ends{Right: 1, NoReply: 1, CutOff: 1, Prose: 1}, sampled.Ends, "the records tell these without a database")
	require.Equal(t, 1, sampled.Ungraded, "the one attempt at t1 with a reply")
	require.Len(t, sampled.Reasons, 1)
	require.Contains(t, sampled.Reasons[0], "unusable database: stat "+e.databases[1])
	require.Equal(t, 3, sampled.Agents[0].Attempts)
	require.Equal(t, estimate(0.5, 0.5, 0.5), sampled.Agents[0].First.WithoutProse, "of t0 alone")
	require.Equal(t, agents.Ends{Failed: 1, NoToolCall: 1}, got.Evaluations[1].Ends)
	var text bytes.Buffer
	require.NoError(t, got.WriteText(&text))
	require.Contains(t, text.String(), "    the replies of 1 attempt can't be graded again:\n      unusable database: stat "+e.databases[1])
}

func TestAGraderThatNeedsMoreThanATextIsNotAsked(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"command","command":["false"]}}`)
	e.fill()
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	require.Equal(t, "grader.type command needs more than a text, so replies can't be graded by themselves", got.NotGraded)
	sampled := got.Evaluations[0]
	require.Equal(t, agents.Ends{Right: 1, NoReply: 1, CutOff: 2}, sampled.Ends, "no result is graded again")
	require.Equal(t, []agents.Agent{
		{Agent: "writer", Source: "path", Attempts: 3, Replies: 4, Earned: estimate(0.25, 0, 0.5)},
		{Agent: "checker", Source: "path", Attempts: 2, Replies: 2, Earned: estimate(0.5, 0.5, 0.5)},
	}, sampled.Agents)
	var text bytes.Buffer
	require.NoError(t, got.WriteText(&text))
	require.Contains(t, text.String(), "    writer                 3  -                     -                     0.250 [0.000, 0.500]\n")
}

func TestAReplyThatIsRightAsWrittenStaysRight(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"exact","extract":"after ####"}}`)
	e.evaluation(0)
	e.attempt(0, 0, 0, record.OutcomeCompleted, 0, "", said{agent: "writer", text: "#### " + cats + "\nas you asked"})
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	one := estimate(1, 1, 1)
	require.Equal(t, &agents.Reply{AsWritten: one, WithoutProse: one}, got.Evaluations[0].Agents[0].First)
	require.Equal(t, agents.Ends{Wrong: 1}, got.Evaluations[0].Ends)
}

func TestARunWithoutEvaluationsHasNothingToTell(t *testing.T) {
	t.Parallel()
	e := newRun(t, `{"grader":{"type":"exact"}}`)
	got, err := e.source.Report(t.Context())
	require.NoError(t, err)
	require.Empty(t, got.Evaluations)
	var text bytes.Buffer
	require.NoError(t, got.WriteText(&text))
	require.Contains(t, text.String(), "  no evaluation is on record\n")
}
