package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// paid is a reflector that counts what it is asked.
type paid struct{ asked int }

func (p *paid) Reflect(context.Context, reflector.Question) (reflector.Reply, error) {
	p.asked++
	return reflector.Reply{Text: "```\nCompute slowly.\n```"}, nil
}

func (*paid) Key(q reflector.Question) string { return q.User }
func (*paid) Close()                          {}

// restarting is a ledger whose database is away when the first replies are to be stored.
type restarting struct {
	activities.Ledger
	failures int
}

func (r *restarting) PutReflection(ctx context.Context, one record.Reflection) (record.Reflection, bool, error) {
	if r.failures > 0 {
		r.failures--
		return record.Reflection{}, false, errors.New("the database system is shutting down")
	}
	return r.Ledger.PutReflection(ctx, one)
}

func TestAReplyOutlivesARestartOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(optimizing(w))
	from := &paid{}
	w.coordinator.Ledger = &restarting{w.store, 2}
	w.coordinator.Reflectors = func(spec.Reflector) (reflector.Reflector, error) { return from, nil }
	step := func() activities.SearchRequest {
		out, err := do[activities.StepSearchResult](t, w.coordinator.StepSearch, activities.StepSearchInput{Run: "demo"})
		require.NoError(t, err)
		require.Len(t, out.Requests, 1)
		return out.Requests[0]
	}
	request := step()
	for ; request.Kind == search.Evaluate; request = step() {
		in := activities.AnswerSearchInput{Run: "demo", Request: request.ID}
		for _, task := range request.Tasks {
			in.Results = append(in.Results, search.Result{Task: task, Score: new(float64)})
		}
		execute(t, w.coordinator.AnswerSearch, in)
	}
	execute(t, w.coordinator.AskReflector, activities.AskReflectorInput{Run: "demo", Request: request.ID})
	require.Equal(t, 1, from.asked, "the reply was kept until it could be stored")
	answers, err := w.store.SearchAnswers(t.Context(), "demo", 0)
	require.NoError(t, err)
	var a search.Answer
	require.NoError(t, json.Unmarshal(answers[len(answers)-1].Answer, &a))
	require.Equal(t, "Compute slowly.", a.Text)
}

// execute executes an activity that has no result.
func execute[Input any](t *testing.T, activity func(context.Context, Input) error, in Input) {
	t.Helper()
	_, err := environment(activity, nil).ExecuteActivity(activity, in)
	require.NoError(t, err)
}
