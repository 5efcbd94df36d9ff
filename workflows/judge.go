package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
)

// judge has the calls of a step judged, if the spec asks for it, and returns the
// blob of the judgments. No spec from before there were judges asks for one, so no
// version of the workflow tells old histories apart.
func (t *trainingRun) judge(ctx workflow.Context, g *stepGroups) (string, error) {
	if t.Spec.Credit.Assignment != credit.Judge {
		return "", nil
	}
	var c *activities.Coordinator
	var out activities.JudgeCallsResult
	err := workflow.ExecuteActivity(judging(ctx, fmt.Sprintf("calls of step %d", g.step)), c.JudgeCalls, activities.JudgeCallsInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &out)
	g.addMetrics(out.Metrics)
	return out.Judgments, err
}

// judging is for asking a judge about all attempts of a step.
func judging(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 24 * time.Hour,   // thousands of slow answers, and the requests that the spec allows bound them
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; it beats every second
		RetryPolicy:         forever(time.Second, 30*time.Second),
		Summary:             summary,
	})
}
