package activities

import (
	"encoding/json"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrTypeInvalid is the type of application errors that another try cannot fix.
const ErrTypeInvalid = "Invalid"

// ErrTypeFinal is the type of those of them that a retry of the run would meet again.
const ErrTypeFinal = "Final"

// ErrTypeRefused is the type of the error of a run whose spec was refused, before
// anything began under its name.
const ErrTypeRefused = "Refused"

// PrepareRunInput is the spec as the user gave it, and the execution that asks.
type PrepareRunInput struct {
	Spec        json.RawMessage `json:"spec"`
	Run         string          `json:"run"`
	WorkflowID  string          `json:"workflow_id"`
	ExecutionID string          `json:"execution_id"` // of the first execution of the chain
	// Workflow is the type of the workflow that the spec is the input of. It is empty for a
	// trial, which takes specs of both.
	Workflow string `json:"workflow,omitempty"`
}

// PrepareRunResult is the prepared run, in the form that all later activities read.
type PrepareRunResult struct {
	Spec   spec.Spec                    `json:"spec"` // with defaults, paths absolute
	Splits map[record.Kind]record.Split `json:"splits"`
	// SearchAttributes is false if Fulgurite's search attributes are not registered in
	// the cluster.
	SearchAttributes bool `json:"search_attributes"`
}

// InitPolicyInput asks for version 0.
type InitPolicyInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
}

// VersionResult names a version that now exists.
type VersionResult struct {
	Number  int                `json:"number"`
	Weights string             `json:"weights"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// InitPolicyResult is the version that InitPolicy made.
type InitPolicyResult = VersionResult

// TrainStepResult is the version that TrainStep made.
type TrainStepResult = VersionResult

// TrainCriticResult is the critic's version that TrainCritic made; with several critics it
// has their number and the metrics of all of them.
type TrainCriticResult = VersionResult

// PublishVersionInput names the version to make ready.
type PublishVersionInput = model.VersionID

// RunAgentInput asks for one attempt at a rollout.
type RunAgentInput struct {
	Rollout record.RolloutID `json:"rollout"`
	Index   int              `json:"index"` // of the task in its split
	Policy  string           `json:"policy"`
	Version int              `json:"version"`
	Greedy  bool             `json:"greedy,omitempty"` // temperature 0 instead of the spec's
	// Prompts is the digest of the prompts that the attempt is served. Empty means the
	// spec's.
	Prompts string `json:"prompts,omitempty"`
	// Versions has the version of each of several policies by its name, if they differ. Nil
	// means that all have the number Version.
	Versions map[string]int `json:"versions,omitempty"`
}

// RunAgentResult is the attempt that counts.
type RunAgentResult struct {
	Attempt int            `json:"attempt"`
	Outcome record.Outcome `json:"outcome"`
	// Reward is nil if a separate grader has not decided yet.
	Reward *float64 `json:"reward,omitempty"`
	Calls  int      `json:"calls"`
	Tokens int      `json:"tokens"`
	// TaskFault says why the attempt failed because of the task and not because of the
	// policy. It is empty if it did not.
	TaskFault string `json:"task_fault,omitempty"`
	// Title is the beginning of the task in readable form. Only the first sample has it.
	Title string `json:"title,omitempty"`
}

// GradeRolloutInput asks the spec's grader command for the reward of an attempt.
type GradeRolloutInput struct {
	Address record.Address `json:"address"`
	Index   int            `json:"index"`
}

// GradeRolloutResult has that reward.
type GradeRolloutResult struct {
	Reward float64 `json:"reward"`
	// TaskFault says why there is no reward.
	TaskFault string `json:"task_fault,omitempty"`
}

// Group has the results of the samples of one task. Slices have one entry per sample.
type Group struct {
	// Kind is record.Reserve for the group of a reserve, else empty.
	Kind     record.Kind `json:"kind,omitempty"`
	Task     int         `json:"task"`
	Attempts []int       `json:"attempts"`
	Rewards  []float64   `json:"rewards"`
}

// StepGroups names the attempts of a step that count.
type StepGroups struct {
	Run    string  `json:"run"`
	Policy string  `json:"policy"`
	Step   int     `json:"step"`
	Groups []Group `json:"groups"`
}

// AssignCreditInput asks for the batch of a step.
type AssignCreditInput struct {
	StepGroups
	// Values is the digest of the blob with the critic's values. It is empty without a
	// critic.
	Values string `json:"values,omitempty"`
	// Judgments is the digest of the blob with the judge's scores of the calls, a
	// record.Judgments. It is empty without a judge.
	Judgments string `json:"judgments,omitempty"`
	// Reference is the digest of the blob with ScoreReference's log-probabilities. It is
	// empty without credit.kl_in_reward.
	Reference string `json:"reference,omitempty"`
}

// AssignCreditResult names the batch and describes its content.
type AssignCreditResult struct {
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics"`
	// LeftOut lists why groups were left out, in few words. Idle says why the batch has
	// nothing to train; it is empty if it has.
	LeftOut []string `json:"left_out,omitempty"`
	Idle    string   `json:"idle,omitempty"`
}

// FlatGroupsInput asks which of some groups of a step would get no advantage.
type FlatGroupsInput struct {
	StepGroups
}

// FlatGroupsResult reports for each group, in their order, whether it is flat.
type FlatGroupsResult struct {
	Flat []bool `json:"flat"`
}

// TrainStepInput asks for the update of a step, which makes version Step from version
// Step−1.
type TrainStepInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
	Batch  string `json:"batch"`
	// Set has the keys of the spec that were changed during the run, with their values.
	Set map[string]float64 `json:"set,omitempty"`
	// Parent is the version that is trained; nil is version Step−1.
	Parent *int `json:"parent,omitempty"`
}

// ScoreBatchInput asks for a critic's values of the attempts of a step.
type ScoreBatchInput struct {
	Run    string  `json:"run"`
	Step   int     `json:"step"` // the critic that scores is version Step−1
	Groups []Group `json:"groups"`
}

// ScoreBatchResult names the blob with the values, a model.Values.
type ScoreBatchResult struct {
	Values string `json:"values"`
}

// ScoreReferenceInput asks for the log-probabilities of the attempts of a step under
// version 0.
type ScoreReferenceInput struct {
	StepGroups
}

// ScoreReferenceResult names the blob with them, a model.Values.
type ScoreReferenceResult struct {
	Reference string `json:"reference"`
}

// TrainCriticInput asks for version Step of the critic, from its version Step−1.
type TrainCriticInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"` // the policy that the critic and the batch belong to
	Step   int    `json:"step"`
	Batch  string `json:"batch"`
	// Set has the keys of the spec that were changed during the run, with their values.
	Set map[string]float64 `json:"set,omitempty"`
}

// RecordStepInput is a finished step to record.
type RecordStepInput struct {
	Run     string             `json:"run"`
	Policy  string             `json:"policy"`
	Step    int                `json:"step"`
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics"`
}

// Evaluation is the mean reward of a version on a split.
type Evaluation = record.EvaluationResult

// RecordEvaluationInput is an evaluation to record.
type RecordEvaluationInput struct {
	Run        string     `json:"run"`
	Policy     string     `json:"policy"`
	Evaluation Evaluation `json:"evaluation"`
}

// PromoteVersionInput asks to move the promoted pointer from Previous (-1: none) to
// Version.
type PromoteVersionInput struct {
	Run        string         `json:"run"`
	Policy     string         `json:"policy"`
	DecisionID string         `json:"decision_id"`
	Version    int            `json:"version"`
	Previous   int            `json:"previous"`
	Decision   model.Decision `json:"decision"`
}

// PromoteVersionResult says where the pointer is afterwards.
type PromoteVersionResult struct {
	// Moved is false if the pointer was moved or pinned by another decision or a person
	// after the decision was made.
	Moved    bool   `json:"moved"`
	Promoted int    `json:"standing"`
	Reason   string `json:"reason,omitempty"`
}

// DecidePromotionInput asks whether a candidate is better than the promoted
// version.
type DecidePromotionInput struct {
	Run       string `json:"run"`
	Policy    string `json:"policy"`
	Candidate int    `json:"candidate"`
	// Set has the keys of the spec that were changed during the run, with their values.
	Set map[string]float64 `json:"set,omitempty"`
}

// DecidePromotionResult is that decision. The pointer has not moved yet.
type DecidePromotionResult struct {
	Decision model.Decision `json:"decision"`
	// Verdict is the outcome of the decision, if it was on record already: "promoted", or
	// the verdict that RecordDecision or PromoteVersion recorded.
	Verdict string `json:"verdict,omitempty"`
}

// RecordDecisionInput is a decision to record that moves no pointer.
type RecordDecisionInput struct {
	Run      string         `json:"run"`
	Policy   string         `json:"policy"`
	Decision model.Decision `json:"decision"`
	Verdict  string         `json:"verdict"` // "refused", "rejected by …", "timed_out", "superseded by …"
}

// RecordDecisionResult is empty if the decision is now on record.
type RecordDecisionResult struct {
	// Verdict is the recorded verdict if it differs.
	Verdict string `json:"verdict,omitempty"`
	// Promoted is the version that is promoted then, -1 for none.
	Promoted int `json:"standing,omitempty"`
}

// RecordQuarantineInput asks to record that a task can't be trained on.
type RecordQuarantineInput struct {
	Run     string `json:"run"`
	Policy  string `json:"policy"`
	Step    int    `json:"step"`
	Task    int    `json:"task"`  // ordinal in its stream
	Index   int    `json:"index"` // in the train split
	Reserve bool   `json:"reserve,omitempty"`
	Reason  string `json:"reason"`
}

// FinishRunInput asks to close the record of a run, if the record belongs to the given
// execution.
type FinishRunInput struct {
	Run         string          `json:"run"`
	ExecutionID string          `json:"execution_id"`
	Status      record.Status   `json:"status"`
	Result      json.RawMessage `json:"result,omitempty"`
}

// StepSearchInput asks what a run's search for better prompts needs now.
type StepSearchInput struct {
	Run string `json:"run"`
	// Stop ends the search with the best candidate so far.
	Stop bool `json:"stop,omitempty"`
}

// StepSearchResult has either open requests or the end of the search.
type StepSearchResult struct {
	Requests []SearchRequest `json:"requests,omitempty"`
	End      *SearchEnd      `json:"end,omitempty"`
	Progress SearchProgress  `json:"progress"`
}

// SearchRequest is a request of a search, without texts.
type SearchRequest struct {
	ID string `json:"id"`
	// Number counts the requests of the search from 0.
	Number int         `json:"number"`
	Kind   search.Kind `json:"kind"`
	// Rollouts is the kind of the rollouts, Tasks are indexes in their split, Samples the
	// number of attempts at each, and Prompts the digest of what they are served. Only with
	// Kind "evaluate".
	Rollouts record.Kind `json:"rollouts,omitempty"`
	Tasks    []int       `json:"tasks,omitempty"`
	Samples  int         `json:"samples,omitempty"`
	Prompts  string      `json:"prompts,omitempty"`
}

// SearchEnd is the end of a search.
type SearchEnd struct {
	Reason  search.Reason  `json:"reason"`
	Purpose search.Purpose `json:"purpose,omitempty"`
	// Version is the version of the prompts that the winner became, 0 if nothing was better
	// than the first texts.
	Version int `json:"version"`
	// Prompts is the digest of that version's.
	Prompts   string   `json:"prompts"`
	Score     *float64 `json:"score,omitempty"`
	SeedScore *float64 `json:"seed_score,omitempty"`
}

// SearchProgress is how far a search has come.
type SearchProgress struct {
	Candidates int           `json:"candidates"` // measured on the validation split, the seed included
	Proposals  int           `json:"proposals"`
	Refused    int           `json:"refused"` // replies of the reflector
	Best       *float64      `json:"best,omitempty"`
	Spent      search.Budget `json:"spent"`
}

// AnswerSearchInput is the result of an evaluation that a search asked for.
type AnswerSearchInput struct {
	Run     string          `json:"run"`
	Request string          `json:"request"`
	Results []search.Result `json:"results"`
}

// AskReflectorInput asks for the answer to a request that a reflector has to answer.
type AskReflectorInput struct {
	Run     string `json:"run"`
	Request string `json:"request"`
}

// TryReflectorInput asks a reflector for one new text, given the attempts of a trial.
type TryReflectorInput struct {
	StepGroups
}

// TryReflectorResult is what came of it.
type TryReflectorResult struct {
	Prompt string `json:"prompt"` // the name of the prompt that was to be improved
	Model  string `json:"model,omitempty"`
	Text   string `json:"text,omitempty"`
	// Refusal says why there is no text.
	Refusal search.Refusal `json:"refusal,omitempty"`
}
