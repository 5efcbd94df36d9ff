package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// Runs keeps runs. CreateRun returns the run on record under the name, and whether this
// call made it.
type Runs interface {
	CreateRun(ctx context.Context, r record.Run) (record.Run, bool, error)
	Run(ctx context.Context, name string) (record.Run, error)
	FinishRun(ctx context.Context, name string, status record.Status, result []byte) error
	ReopenRun(ctx context.Context, r record.Run) error
}

// Ledger stores what a run produces. Every Put returns the row that is recorded under the
// natural key.
type Ledger interface {
	PutBatch(ctx context.Context, b record.Batch) (record.Batch, bool, error)
	Batch(ctx context.Context, run, policy string, step int) (record.Batch, error)
	PutStep(ctx context.Context, s record.Step) error
	PutEvaluation(ctx context.Context, e record.Evaluation) error
	Spent(ctx context.Context, run string) (record.Spent, error)
	PutQuarantine(ctx context.Context, q record.Quarantine) error
	Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error)
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	LastVersion(ctx context.Context, run, policy string) (model.Version, error)
	Choices
	judge.Judgments
	Searches
	Pointer
}

// Searches keeps what searches for better prompts asked for and got.
type Searches interface {
	// PutSearchAnswer returns the answer that is stored for the request, and whether this
	// call stored it.
	PutSearchAnswer(ctx context.Context, a record.SearchAnswer) (record.SearchAnswer, bool, error)
	SearchAnswers(ctx context.Context, run string, from int) ([]record.SearchAnswer, error)
	// PutReflection returns the reply that is stored under the key, and whether this call
	// stored it.
	PutReflection(ctx context.Context, r record.Reflection) (record.Reflection, bool, error)
	Reflection(ctx context.Context, key string) (record.Reflection, error)
	PutPromptVersion(ctx context.Context, v record.PromptVersion) error
	PromptVersion(ctx context.Context, run string, number int) (record.PromptVersion, error)
}

// Choices keeps which tasks steps attempt under a curriculum, and reads the results from
// which they are chosen.
type Choices interface {
	// PutChoice returns the recorded choice, which is c or an earlier one.
	PutChoice(ctx context.Context, c record.Choice) (record.Choice, error)
	Choice(ctx context.Context, run, policy string, step int) (record.Choice, error)
	StepScores(ctx context.Context, run, policy string, first, last int) ([]record.StepScore, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
}

// Pointer keeps the promoted version and the decisions about it.
type Pointer interface {
	Promote(ctx context.Context, p record.Promotion) error
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	Promotion(ctx context.Context, run, policy, id string) (record.Promotion, error)
	PutDecision(ctx context.Context, d record.Decision) error
	Decision(ctx context.Context, run, policy, id string) (record.Decision, error)
	Scores(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.Score, error)
}

// Attempts keeps attempts at rollouts.
type Attempts interface {
	BeginAttempt(ctx context.Context, id record.RolloutID, taskID string, terms record.Terms, keyHash string) (record.Address, error)
	BeginUnlessEnded(ctx context.Context, id record.RolloutID, taskID string, terms record.Terms, keyHash string) (a record.Address, ended bool, err error)
	SealAttempt(ctx context.Context, a record.Attempt) error
	Attempt(ctx context.Context, a record.Address) (record.Attempt, error)
	AttemptProgress(ctx context.Context, id record.RolloutID) ([]record.Progress, error)
	PutReward(ctx context.Context, r record.Reward) error
	Rewards(ctx context.Context, a record.Address) ([]record.Reward, error)
	// PutGradingFailure counts a failure of an attempt's grader.
	PutGradingFailure(ctx context.Context, a record.Address, reason string) (failures int, err error)
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
	// Exchanges reads the calls of an attempt with their bodies.
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Spans(ctx context.Context, a record.Address) ([]record.Span, error)
	Events(ctx context.Context, a record.Address) ([]record.Event, error)
	Refusals(ctx context.Context, a record.Address) ([]record.Refusal, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Put(ctx context.Context, data []byte) (digest string, err error)
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Codecs finds a codec by its name in a spec.
type Codecs func(name string) (dialog.Codec, error)

// Collector deletes those files of a run's versions that are no longer needed under the
// run's spec.
type Collector interface {
	Collect(ctx context.Context, run string) error
}

// Sleeper puts to sleep the servers that sample a run on the trainer's GPU, so that they
// free its memory. The returned function wakes them. It is nil if there are no such
// servers. Both functions may be called again.
type Sleeper interface {
	Sleep(ctx context.Context, run string) (wake func(context.Context) error, err error)
}

// Publisher makes a version ready to be sampled.
type Publisher interface {
	Publish(ctx context.Context, v model.VersionID) error
}

// Cluster reports what is registered in a Temporal cluster.
type Cluster interface {
	HasSearchAttributes(ctx context.Context) (bool, error)
}

// Launchers makes the launcher that a spec asks for.
type Launchers interface {
	Launcher(s spec.Spec) (agent.Launcher, error)
}

// Forwarder opens the sessions through which agents reach their models, one for each
// attempt. Open is for an agent that this worker runs or asks, and its session ends with ctx.
// OpenExternal is for an external agent, and its session ends after limit
// unless it was closed before.
type Forwarder interface {
	Open(ctx context.Context, address record.Address, key string) (*forwarder.Session, error)
	OpenExternal(address record.Address, key string, limit time.Duration) (*forwarder.Session, error)
}

// Workers has information about users' workers, which run agents that are workflows or
// activities.
type Workers interface {
	// Polled reports whether a worker has recently polled a queue for workflows, or else
	// for activities.
	Polled(ctx context.Context, queue string, workflows bool) (bool, error)
	// Stuck says what kept a workflow from going on, now or when it ended: no worker had
	// taken its task, or its code failed there. It is empty if the workflow could go on.
	Stuck(ctx context.Context, workflowID string) (string, error)
}

// invalid marks err as an error that another try cannot fix. The mark stays, however err
// is wrapped on its way out of the activity.
func invalid(err error) error { return update.Invalid(err) }

// permanent reports whether err is one that another try can't fix.
func permanent(err error) bool {
	var mark update.InvalidError
	return errors.As(err, &mark)
}

// temporalError turns an invalid error into a non-retryable error of Temporal. Every
// activity that can get an invalid error defers it. Only the outermost error decides
// whether Temporal tries again, so the mark has to be outermost. The new error has no
// cause: with a cause, Temporal would repeat the same words for each wrapping.
func temporalError(err *error) {
	if permanent(*err) {
		kind := ErrTypeInvalid
		var last update.FinalError
		if errors.As(*err, &last) {
			kind = ErrTypeFinal
		}
		*err = temporal.NewNonRetryableApplicationError((*err).Error(), kind, nil)
	}
}

// named returns a codec by its name. An unknown codec ends the run. If a codec of the
// store can't be read now, it is read again later.
func (c Codecs) named(name string) (dialog.Codec, error) {
	codec, err := c(name)
	if errors.Is(err, dialog.ErrCodec) {
		err = invalid(err)
	}
	return codec, err
}
