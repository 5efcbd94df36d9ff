package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// fromTraffic returns the spec of a run that learns from conversations.
func fromTraffic() spec.Spec {
	s := small(9)
	s.Tasks = spec.Tasks{Gate: "arithmetic:gate:4"}
	s.Training = spec.Training{Steps: 9, Minibatches: 2}
	s.Evaluation.Every, s.Promotion.Significance = 1, 1
	s.Traffic = &spec.Traffic{Record: spec.RecordAll, IdleMinutes: 0.001, Train: &spec.TrafficTraining{MinReplies: 4}}
	return patient(s.WithDefaults())
}

// trafficRun is a run that learns from conversations, while a test goes on.
type trafficRun struct {
	t     *testing.T
	st    *stack.Stack
	name  string
	asked int
}

// startTraffic starts a run, and returns once its version 0 is promoted.
func startTraffic(t *testing.T, st *stack.Stack, name string, s spec.Spec) *trafficRun {
	t.Helper()
	r := &trafficRun{t: t, st: st, name: name}
	_ = inBackground(t.Context(), st, name, s)
	require.Eventually(t, func() bool {
		_, err := st.Store.Promoted(t.Context(), name, model.DefaultPolicy)
		return err == nil
	}, 2*time.Minute, 20*time.Millisecond)
	return r
}

// converse records conversations with a version and what people say of them. They depend on
// the numbers alone, so all runs get the same.
func (r *trafficRun) converse(version, from, to int) {
	r.t.Helper()
	ctx, codec := r.t.Context(), dialog.Compact()
	for i := from; i < to; i++ {
		c, _, err := r.st.Store.BeginConversation(ctx, record.Conversation{
			Run: r.name, Policy: model.DefaultPolicy, Version: version, Name: fmt.Sprint("c", i),
		}, record.Terms{Policy: model.DefaultPolicy, Version: version, Codec: "compact", ClientSampling: true})
		require.NoError(r.t, err)
		prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: fmt.Sprint("say ", i)}}, nil)
		require.NoError(r.t, err)
		completion := append(codec.Encode(fmt.Sprint("no. ", i)), codec.Stop()[0])
		id := fmt.Sprintf("%s-reply-%d", r.name, i)
		require.NoError(r.t, r.st.Store.AppendCall(ctx, &record.Exchange{
			Call: record.Call{
				Address: c.Address(), ID: id, Parent: -1, Policy: model.DefaultPolicy, Version: version, Key: "k",
				Prompt: prompt, Completion: completion, Logprobs: make([]float32, len(completion)), Temperature: 1, Finish: "stop",
			},
			Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{},
		}))
		value := float64(i%2)*2 - 1
		_, _, err = r.st.Store.PutFeedback(ctx, record.Feedback{Run: r.name, ID: fmt.Sprint("f", i), Conversation: c.Number, CallID: id, Reward: &value, At: time.Unix(int64(1000+i), 0)})
		require.NoError(r.t, err)
	}
	kinds := []record.FeedbackKind{record.FeedbackValue}
	require.Eventually(r.t, func() bool { // until all have ended
		ended, err := r.st.Store.UnusedFeedback(ctx, r.name, kinds, time.Now().Add(-100*time.Millisecond), time.Now().AddDate(100, 0, 0), 1000)
		require.NoError(r.t, err)
		all, err := r.st.Store.UnusedFeedback(ctx, r.name, kinds, time.Now().Add(time.Hour), time.Now().AddDate(100, 0, 0), 1000)
		require.NoError(r.t, err)
		return len(ended) == len(all)
	}, time.Minute, 10*time.Millisecond)
}

// ask asks for a segment as a schedule does; the answer comes later.
func (r *trafficRun) ask() client.WorkflowRun {
	r.t.Helper()
	r.asked++
	started, err := r.st.Client.ExecuteWorkflow(r.t.Context(), client.StartWorkflowOptions{
		ID: fmt.Sprintf("%s/traffic-%d", r.name, r.asked), TaskQueue: workflows.QueueTraining,
	}, workflows.TypeTraffic, workflows.TrafficInput{Run: r.name})
	require.NoError(r.t, err)
	return started
}

// learned waits for the answer, which has to be a step.
func (r *trafficRun) learned(asked client.WorkflowRun, step int) {
	r.t.Helper()
	var out activities.RequestSegmentResult
	require.NoError(r.t, asked.Get(r.t.Context(), &out))
	require.Equal(r.t, step, out.Step, out.Message)
}

// resetBoth resets the run to before its first segment. Temporal makes both requests again, at
// the same time.
func (r *trafficRun) resetBoth() {
	r.t.Helper()
	ctx := r.t.Context()
	ids, points := points(eventsOf(ctx, r.t, r.st.Client, r.name))
	at := slices.IndexFunc(ids, func(event int64) bool { return points[event] == "ChooseSegment" })
	_, err := reset(ctx, r.st.Client, r.name, "", ids[at])
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		var p workflows.Progress
		value, err := r.st.Client.QueryWorkflow(ctx, r.name, "", workflows.QueryProgress)
		require.NoError(r.t, err)
		require.NoError(r.t, value.Get(&p))
		return p.Step == 2
	}, time.Minute, 20*time.Millisecond)
}

// resetStopped resets the run, which was stopped, to its beginning and to before each of its
// segments. Temporal makes the requests and the stop again, before the run can make a step.
func (r *trafficRun) resetStopped() {
	r.t.Helper()
	ctx := r.t.Context()
	var want workflows.TrainingResult
	require.NoError(r.t, r.st.Client.GetWorkflow(ctx, r.name, "").Get(ctx, &want))
	require.Equal(r.t, 2, want.Stopped.After)
	first := firstExecution(ctx, r.t, r.st.Client, r.name)
	ids, points := points(eventsOf(ctx, r.t, r.st.Client, r.name))
	resets := 0
	for _, event := range ids {
		if points[event] != "PrepareRun" && points[event] != "ChooseSegment" {
			continue
		}
		resets++
		run, err := reset(ctx, r.st.Client, r.name, first, event)
		require.NoError(r.t, err)
		var got workflows.TrainingResult
		require.NoError(r.t, r.st.Client.GetWorkflow(ctx, r.name, run).Get(ctx, &got))
		require.Equal(r.t, want, got, "reset to event %d: %s", event, points[event])
	}
	require.Equal(r.t, 3, resets)
}

// outcome stops the run and returns what has to be the same whatever happened to it.
func (r *trafficRun) outcome() trafficOutcome {
	r.t.Helper()
	ctx := r.t.Context()
	update(ctx, r.t, r.st, r.name, workflows.UpdateStop, workflows.ControlInput{By: "ada"})
	var out trafficOutcome
	var result workflows.TrainingResult
	require.NoError(r.t, r.st.Client.GetWorkflow(ctx, r.name, "").Get(ctx, &result))
	versions, err := r.st.Store.Versions(ctx, r.name, model.DefaultPolicy)
	require.NoError(r.t, err)
	for _, v := range versions {
		out.Weights, out.Parents = append(out.Weights, v.Weights), append(out.Parents, v.Parent)
	}
	require.Equal(r.t, versions[len(versions)-1].Weights, result.Weights)
	out.Promoted, out.Steps = result.Promoted, result.Steps
	segments, err := r.st.Store.Segments(ctx, r.name, model.DefaultPolicy)
	require.NoError(r.t, err)
	for _, s := range segments {
		slices.Sort(s.Feedback)
		out.Feedback = append(out.Feedback, s.Feedback)
	}
	return out
}

// trafficOutcome is what a run that learns from conversations came to.
type trafficOutcome struct {
	Weights         []string
	Parents         []int
	Feedback        [][]string // of each segment
	Promoted, Steps int
}

// gatedEvaluation is an agent that waits, in the evaluation of version 1, until it may go on.
type gatedEvaluation struct {
	once    sync.Once
	reached chan struct{}
	open    chan struct{}
}

func (g *gatedEvaluation) solve(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	if env.Rollout.Kind == record.Gate && env.Rollout.Step == 1 {
		g.once.Do(func() { close(g.reached) })
		select {
		case <-g.open:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return calculate(ctx, task, env)
}

// A run is reset while the version of its first segment is evaluated, to before each part of
// that step, and people have said more since the segment was chosen.
func TestARunThatLearnsFromUseIsResetIntoTheSameWeights(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestARunResetWhileItRuns does the same while goroutines meet")
	agents := agent.Registry{"calculator": calculate}
	kinds := []string{"ChooseSegment", "SegmentBatch", "TrainStep", "EvaluationWorkflow"}
	gates := map[string]*gatedEvaluation{}
	for _, kind := range kinds {
		gates[kind] = &gatedEvaluation{reached: make(chan struct{}), open: make(chan struct{})}
		agents[kind] = gates[kind].solve
	}
	ctx := t.Context()
	st := startWith(ctx, t, t.TempDir(), agents)
	defer func() { require.NoError(t, st.Close()) }()
	calm := startTraffic(t, st, "calm", fromTraffic())
	calm.converse(0, 0, 6)
	calm.learned(calm.ask(), 1)
	calm.converse(0, 6, 12)
	calm.learned(calm.ask(), 2)
	want := calm.outcome()
	require.Equal(t, 2, want.Steps)
	calm.resetStopped()

	for _, kind := range kinds {
		s := fromTraffic()
		s.Agent.Func = kind
		r := startTraffic(t, st, "reset-"+strings.ToLower(kind), s)
		r.converse(0, 0, 6)
		first := r.ask()
		<-gates[kind].reached
		r.converse(0, 6, 12)
		ids, points := points(eventsOf(ctx, t, st.Client, r.name))
		var at int64
		for _, event := range ids {
			// The evaluation of version 0 comes before the segment.
			if points[event] == kind {
				at = event
			}
		}
		require.NotZero(t, at, kind)
		_, err := reset(ctx, st.Client, r.name, firstExecution(ctx, t, st.Client, r.name), at)
		require.NoError(t, err)
		close(gates[kind].open)
		r.learned(first, 1)
		r.learned(r.ask(), 2)
		if kind == kinds[0] {
			r.resetBoth()
		}
		require.Equal(t, want, r.outcome(), "reset to before %s", kind)
	}
}
