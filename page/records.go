package page

import (
	"context"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
)

// Records is the part of a store that the page reads.
type Records interface {
	report.Store
	promptsearch.Store
	LatestRuns(ctx context.Context, from, most int) ([]record.Run, error)
	RunsLike(ctx context.Context, q record.RunQuery) ([]record.Run, int, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	LastVersion(ctx context.Context, run, policy string) (model.Version, error)
	VersionsBetween(ctx context.Context, run, policy string, from, to int) ([]model.Version, error)
	EvaluationsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Evaluation, error)
	PromotionsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Promotion, error)
	DecisionsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Decision, error)
	LatestPromotions(ctx context.Context, run, policy string, most int) ([]record.Promotion, error)
	LatestDecisions(ctx context.Context, run, policy string, most int) ([]record.Decision, error)
	LatestQuarantines(ctx context.Context, run, policy string, most int) ([]record.Quarantine, error)
	QuarantinesOfStep(ctx context.Context, run, policy string, step int) ([]record.Quarantine, error)
	TrialsOfGroup(ctx context.Context, run string, kind record.Kind, step, task int) ([]record.Trial, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
	Events(ctx context.Context, a record.Address) ([]record.Event, error)
	Leases(ctx context.Context, role record.Role) ([]record.Lease, error)
	LatestInterruptions(ctx context.Context, run string, most int) ([]record.Interruption, error)
	LastStep(ctx context.Context, run, policy string) (record.Step, error)
	StepsAfter(ctx context.Context, run, policy string, after int) ([]record.Step, error)
	Lags(ctx context.Context, run, policy string, after int) (map[int]float64, error)
	Batch(ctx context.Context, run, policy string, step int) (record.Batch, error)
	Choice(ctx context.Context, run, policy string, step int) (record.Choice, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	TrialsOfStep(ctx context.Context, run string, kind record.Kind, step int) ([]record.Trial, error)
	TrialsCutOff(ctx context.Context, run string, most int) ([]record.Trial, error)
	TaskResults(ctx context.Context, run, policy string, pass float64, greedy int) ([]record.TaskResult, error)
	TaskMoments(ctx context.Context, run, policy string, pass float64, greedy int, keep func(record.Kind, string) bool) ([]record.TaskMoment, error)
	Attempt(ctx context.Context, address record.Address) (record.Attempt, error)
	ExchangesBetween(ctx context.Context, address record.Address, from, to int) ([]record.Exchange, error)
	Rewards(ctx context.Context, address record.Address) ([]record.Reward, error)
	Spans(ctx context.Context, address record.Address) ([]record.Span, error)
	Refusals(ctx context.Context, address record.Address) ([]record.Refusal, error)
	Output(ctx context.Context, address record.Address) (record.Output, error)
	Conversation(ctx context.Context, run string, number int) (record.Conversation, error)
	Conversations(ctx context.Context, q record.ConversationQuery) ([]record.ConversationSummary, error)
	FeedbackLabels(ctx context.Context, run string, conversations []int) (map[int][]string, error)
	FeedbackSteps(ctx context.Context, run string, conversation int) ([]int, error)
	LatestFeedback(ctx context.Context, run string, conversation int, replies []string, most int) (all []record.Feedback, counts map[string]int, err error)
	ServedReply(ctx context.Context, id string) (record.Conversation, record.Call, error)
	TrafficSetting(ctx context.Context, run string) (string, error)
	Segment(ctx context.Context, run, policy string, step int) (record.Segment, error)
	SegmentsBefore(ctx context.Context, run, policy string, step, most int) ([]record.Segment, error)
	ExperimentsBefore(ctx context.Context, run, policy string, candidate, most int) ([]record.Experiment, error)
	Actions(ctx context.Context, run string, most int) ([]record.Action, error)
	Action(ctx context.Context, id string) (record.Action, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Codecs finds a codec by its name in the terms of an attempt.
type Codecs func(name string) (dialog.Codec, error)

// Live is Temporal's view of runs.
type Live interface {
	// Runs corrects the status of runs. If Temporal can't be asked, it returns the runs
	// unchanged, with the error.
	Runs(ctx context.Context, runs []record.Run) ([]record.Run, error)
	// State returns what a run under way is doing.
	State(ctx context.Context, run string) (State, error)
	// WorkflowURL returns the URL of a workflow in Temporal's Web UI, or "" if there is
	// no UI.
	WorkflowURL(id string) string
}

// State is the activity of a run that is under way, and its obstacles.
type State struct {
	Phase   string // what it does, for example "rollouts"
	Subject string // what the phase works on
	Done    int    // rollouts of the step or the evaluation under way
	Total   int
	Pace    string // tokens a second and the remaining time, as text; empty if unknown
	Paused  bool
	Stop    *record.Stop // request to end the run early; nil if there is none
	// Pending is the version that waits for approval, or -1 if none does.
	Pending int
	// Waits says what keeps the run from going on, a sentence for each obstacle.
	Waits []string
}
