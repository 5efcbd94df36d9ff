package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
)

// shadow lets a candidate that passed the gate reply to prompts on record. It goes on as it
// would have without, unless significantly more of its replies have faults than the recorded
// ones. The pointer is free meanwhile, so that people may approve another candidate, or roll
// back; a candidate that was compared with another version is then refused.
func (t *trainingRun) shadow(ctx workflow.Context, d model.Decision) error {
	t.enter(ctx, PhaseShadow, fmt.Sprintf("version %d", d.Candidate))
	var c *activities.Coordinator
	var r activities.ShadowResult
	err := workflow.ExecuteActivity(t.inShadow(ctx, d), c.RunShadow, activities.ShadowInput{
		Run: t.Run, Policy: t.policy(), Candidate: d.Candidate, Promoted: d.Promoted,
	}).Get(ctx, &r)
	if ctx.Err() != nil {
		return err
	}
	if err := t.pointer.Lock(ctx); err != nil {
		return err
	}
	defer t.pointer.Unlock()
	if err != nil { // trying again does not help, and the run goes on without this version
		workflow.GetLogger(ctx).Warn("version not promoted", "version", d.Candidate, "error", err)
		d.Accept, d.Obstacle = false, "its shadow failed: "+Failure(err).Error
		return t.recordDecision(ctx, d, "refused")
	}
	d.Shadow = &r.Shadow
	if t.Promoted != d.Promoted { // what it was compared with no longer answers
		d.Accept, d.Obstacle = false, fmt.Sprintf("version %d was promoted meanwhile, in place of version %d", t.Promoted, d.Promoted)
		return t.recordDecision(ctx, d, "refused")
	}
	if r.Shadow.Withdraw {
		d.Accept, d.Obstacle = false, r.Shadow.Reason()
		return t.recordDecision(ctx, d, "withdrawn")
	}
	return t.proceed(ctx, d)
}

// inShadow returns a context for the replies of a candidate. The activity bounds its own time,
// and needs some more to read what is on record.
func (t *trainingRun) inShadow(ctx workflow.Context, d model.Decision) workflow.Context {
	limit := time.Duration(t.Spec.Traffic.Train.Shadow.Minutes * float64(time.Minute))
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: limit + 10*time.Minute,
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; it beats every second
		RetryPolicy:         forever(200*time.Millisecond, 10*time.Second),
		Summary:             fmt.Sprintf("version %d in the shadow of version %d", d.Candidate, d.Promoted),
	})
}
