package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/update"
)

// fillOutcome sets how the attempt ended and its reward, unless a grader command decides
// the reward.
func (r *Runner) fillOutcome(ctx context.Context, s spec.Spec, task tasks.Task, result agent.Result, a *record.Attempt) error {
	if err := r.grade(ctx, s, task, result, a); err != nil {
		return err
	}
	if err := r.checkNamed(ctx, s, result, a); err != nil {
		return err
	}
	if err := r.checkTruncated(ctx, s, result, a); err != nil {
		return err
	}
	return r.addRefusals(ctx, a)
}

func (r *Runner) grade(ctx context.Context, s spec.Spec, task tasks.Task, result agent.Result, a *record.Attempt) error {
	a.Outcome, a.Result, a.Error = record.OutcomeCompleted, result.Text, result.Note
	if result.Failed() {
		failAttempt(a, s, result)
		return nil
	}
	switch s.Grader.Type {
	case spec.GraderCommand, spec.GraderTasks: // a separate activity decides
		return nil
	case spec.GraderAgent:
		return r.selfGraded(ctx, s, result, a)
	case spec.GraderHarbor: // the tests have already run where the agent did
		a.Reward = result.Reward
		if a.Reward == nil {
			return invalid(fmt.Errorf("task %s: its tests did not run", task.ID))
		}
		return nil
	}
	reward, verdict, err := r.graders.Grade(ctx, s.Grader, task, result.Text)
	switch {
	case errors.Is(err, sqlmatch.ErrDatabase), err != nil && ctx.Err() != nil:
		return err // the error says nothing about the task, so another try or another worker may succeed
	case err != nil:
		return invalid(err)
	}
	a.Reward, a.Verdict = &reward, verdict
	return nil
}

// selfGraded fills in the reward that the agent gave itself: the posted one, else the
// returned one, else the one on the last line of its result. If a posted final reward was
// refused and none was accepted, the agent has failed, whatever it returned: it had
// another reward in mind.
func (r *Runner) selfGraded(ctx context.Context, s spec.Spec, result agent.Result, a *record.Attempt) error {
	posted, ok, err := r.posted(ctx, a.Address)
	if err != nil {
		return err
	}
	refused, err := r.refusedRewards(ctx, a.Address)
	if err != nil {
		return err
	}
	reward, refusal := result.Reward, result.RewardError
	final := slices.IndexFunc(refused, func(f record.Refusal) bool { return f.Code == record.FinalRewardRefused })
	switch {
	case ok:
		reward, refusal = &posted, ""
	case final >= 0:
		reward, refusal = nil, "the reward that the agent posted was refused: "+refused[final].Message
	case reward == nil && refusal == "":
		// A bare number beside a refused post is more likely an answer than a reward.
		bare := s.Grader.Reward == spec.RewardLastLine && len(refused) == 0
		reward, refusal = agent.LastReward(result.Text, s.Grader.Limit, bare)
	}
	if least := s.Grader.Minimum; refusal == "" && reward != nil && least != nil && *reward < *least {
		refusal = fmt.Sprintf("the reward %v is below grader.minimum %v", *reward, *least)
	}
	switch {
	case refusal != "":
		failAttempt(a, s, agent.Result{Failure: badReward, Message: refusal, Note: result.Note})
	case reward == nil && !s.WeighsFinal() && trains(a.Address.Kind):
		a.Reward = new(float64) // nothing reads it: checkNamed asks for the rewards that count
	case reward == nil:
		message := "the agent reported no reward"
		if s.Grader.Reward != spec.RewardLastLine && agent.EndsWithNumber(result.Text) {
			message += "; a number in the last line of its result is one only with grader.reward: last_line"
		}
		failAttempt(a, s, agent.Result{Failure: noReward, Message: message, Stderr: result.Stderr, Note: result.Note})
	default:
		a.Reward = reward
	}
	return nil
}

// checkNamed makes the agent of an attempt fail that is to be trained and lacks a named
// reward with a weight that no grader gives.
func (r *Runner) checkNamed(ctx context.Context, s spec.Spec, result agent.Result, a *record.Attempt) error {
	if !trains(a.Address.Kind) || a.Outcome != record.OutcomeCompleted || len(s.NamedRewards()) == 0 {
		return nil
	}
	rewards, err := r.Attempts.Rewards(ctx, a.Address)
	if err != nil {
		return fmt.Errorf("read rewards: %w", err)
	}
	for _, name := range s.NamedRewards() {
		if name == credit.Final || slices.Contains(s.Grader.Rewards, name) || slices.ContainsFunc(rewards, func(w record.Reward) bool { return w.Name == name && w.CallID == "" }) {
			continue
		}
		failAttempt(a, s, agent.Result{
			Failure: noReward, Message: fmt.Sprintf("the agent reported no reward %q, which credit.rewards weighs", name), Stderr: result.Stderr, Note: result.Note,
		})
		return nil
	}
	return nil
}

// checkTruncated makes an attempt that is to be trained fail if a limit of tokens cut off a
// reply to an agent that is trained, and the spec wants that.
func (r *Runner) checkTruncated(ctx context.Context, s spec.Spec, result agent.Result, a *record.Attempt) error {
	if !s.FailsTruncated() || a.Outcome != record.OutcomeCompleted || !trains(a.Address.Kind) {
		return nil
	}
	trained, err := regexp.Compile("^(?:" + s.Credit.TrainAgents + ")$")
	if err != nil {
		return invalid(fmt.Errorf("credit.train_agents: %w", err))
	}
	calls, err := r.Attempts.Exchanges(ctx, a.Address)
	if err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	spans, err := r.Attempts.Spans(ctx, a.Address)
	if err != nil {
		return fmt.Errorf("read spans: %w", err)
	}
	fails := map[string]bool{} // by policy
	for _, c := range calls {
		if _, ok := fails[c.Policy]; !ok {
			fails[c.Policy] = !s.Policies[c.Policy].Frozen && s.ForPolicy(c.Policy).Credit.Truncated == spec.TruncatedFail
		}
	}
	var cut []int
	for i, name := range attribution.Of(calls, spans, s.Replay.Ignore) {
		if fails[calls[i].Policy] && calls[i].CutOff() && (s.Credit.TrainAgents == "" || trained.MatchString(name.Agent)) {
			cut = append(cut, calls[i].Seq)
		}
	}
	if len(cut) == 0 {
		return nil
	}
	failAttempt(a, s, agent.Result{
		Failure: record.FailureTruncated, Stderr: result.Stderr, Note: result.Note,
		Message: fmt.Sprintf("%d of %d replies were cut off at a limit of tokens, the first that of call %d, and credit.truncated is %q",
			len(cut), len(calls), cut[0], spec.TruncatedFail),
	})
	return nil
}

// trains reports whether attempts of a kind are trained, or shown as if they were.
func trains(kind record.Kind) bool {
	return kind == record.Train || kind == record.Reserve || kind == record.Try
}

// posted returns the recorded final reward, if there is one.
func (r *Runner) posted(ctx context.Context, address record.Address) (float64, bool, error) {
	rewards, err := r.Attempts.Rewards(ctx, address)
	if err != nil {
		return 0, false, fmt.Errorf("read rewards: %w", err)
	}
	for _, p := range rewards {
		if p.Name == credit.Final && p.CallID == "" {
			return p.Value, true, nil
		}
	}
	return 0, false, nil
}

// GraderTries is how often a grader command is asked about one attempt. If it gives no
// reward in as many tries, the command or the task is broken.
const GraderTries = 5

// GradeRollout lets the spec's grader command decide the reward of an attempt. The first
// recorded reward counts, so a grader is not asked twice. It returns an error if the
// command can't be started or the store can't be read, because that says nothing about
// the task. If the command gives no reward in GraderTries tries, or an absurd one, that
// is a fault of the task. The store counts the tries, because Temporal's count includes
// outages.
func (r *Runner) GradeRollout(ctx context.Context, in GradeRolloutInput) (_ GradeRolloutResult, err error) {
	defer temporalError(&err)
	alive := beat{progress: func() any { return nil }} // the command's own limit or Temporal's ends it
	return beating(ctx, alive, func(ctx context.Context) (GradeRolloutResult, error) { return r.gradeRollout(ctx, in) })
}

func (r *Runner) gradeRollout(ctx context.Context, in GradeRolloutInput) (GradeRolloutResult, error) {
	v, err := r.runs.get(ctx, in.Address.Run, r.Runs, r.Blobs)
	if err != nil {
		return GradeRolloutResult{}, err
	}
	if reward, ok, err := r.posted(ctx, in.Address); err != nil || ok {
		return GradeRolloutResult{Reward: reward}, err
	}
	task, err := v.task(in.Address.Kind, in.Index)
	if err != nil {
		return GradeRolloutResult{}, err
	}
	a, err := r.Attempts.Attempt(ctx, in.Address)
	if err != nil {
		return GradeRolloutResult{}, fmt.Errorf("read attempt %s: %w", in.Address, err)
	}
	calls, err := r.callsFor(ctx, v.spec.Grader, in.Address)
	if err != nil {
		return GradeRolloutResult{}, err
	}
	grade, err := r.gradeByCommand(ctx, v.spec, task, a.Result, calls)
	if err != nil {
		return r.graderFailed(ctx, in.Address, fmt.Errorf("grade attempt %s: %w", in.Address, err))
	}
	reward, limit := grade.Reward, v.spec.Grader.Limit
	if limit > 0 && math.Abs(reward) > limit {
		return GradeRolloutResult{TaskFault: fmt.Sprintf("grader of attempt %s returned %v, beyond grader.limit %v", in.Address, reward, limit)}, nil
	}
	for _, name := range v.spec.Grader.Rewards {
		if named := grade.Rewards[name]; limit > 0 && math.Abs(named) > limit {
			return GradeRolloutResult{TaskFault: fmt.Sprintf("grader of attempt %s returned %v as reward %q, beyond grader.limit %v", in.Address, named, name, limit)}, nil
		}
	}
	if least := v.spec.Grader.Minimum; least != nil && reward < *least {
		return GradeRolloutResult{TaskFault: fmt.Sprintf("grader of attempt %s returned %v, below grader.minimum %v", in.Address, reward, *least)}, nil
	}
	// The final reward comes last: once it is on record, the grader is not asked again.
	for _, name := range v.spec.Grader.Rewards {
		err := r.Attempts.PutReward(ctx, record.Reward{Address: in.Address, Name: name, Value: grade.Rewards[name], Source: "grader"})
		if err != nil && !errors.Is(err, record.ErrConflict) { // an earlier execution of a grader that varies gave another one
			return GradeRolloutResult{}, err
		}
	}
	err = r.Attempts.PutReward(ctx, record.Reward{Address: in.Address, Name: credit.Final, Value: reward, Source: "grader"})
	if errors.Is(err, record.ErrConflict) {
		reward, _, err = r.posted(ctx, in.Address)
	}
	return GradeRolloutResult{Reward: reward}, err
}

func (r *Runner) gradeByCommand(ctx context.Context, s spec.Spec, task tasks.Task, result string, calls []tasks.GraderCall) (tasks.CommandGrade, error) {
	if s.Grader.Type == spec.GraderTasks {
		reward, err := r.graders.GradeByProgram(ctx, s.Tasks, s.Grader, task, result)
		return tasks.CommandGrade{Reward: reward}, err
	}
	return tasks.GradeCommand(ctx, s.Grader, tasks.GraderInput{Task: task, Result: result, Calls: calls})
}

// callsFor returns the calls of an attempt for a grader that wants them.
func (r *Runner) callsFor(ctx context.Context, g spec.Grader, address record.Address) ([]tasks.GraderCall, error) {
	if !g.Calls {
		return nil, nil
	}
	exchanges, err := r.Attempts.Exchanges(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("read the calls of attempt %s: %w", address, err)
	}
	out := []tasks.GraderCall{} // a grader that reads calls finds some, or none
	for _, x := range exchanges {
		out = append(out, tasks.GraderCall{Agent: x.Agent, Policy: x.Policy, Request: x.Request, Response: x.Response})
	}
	return out, nil
}

// graderFailed counts a failure of the grader command. A command that could not be
// started, was ended together with its worker, or reports a fault of the machine says
// nothing about the task. A command that reports a fault of the task is not asked again.
func (r *Runner) graderFailed(ctx context.Context, address record.Address, failure error) (GradeRolloutResult, error) {
	var command *tasks.CommandError
	if !errors.As(failure, &command) || errors.Is(failure, tasks.ErrGraderStart) || errors.Is(failure, tasks.ErrMachine) {
		return GradeRolloutResult{}, failure
	}
	if errors.Is(failure, tasks.ErrTask) {
		return GradeRolloutResult{TaskFault: truncate.Ellipsis(failure.Error(), failureBytes)}, nil
	}
	tries, err := r.Attempts.PutGradingFailure(ctx, address, failure.Error())
	if err != nil {
		return GradeRolloutResult{}, errors.Join(failure, err)
	}
	if tries < GraderTries {
		return GradeRolloutResult{}, failure
	}
	return GradeRolloutResult{TaskFault: truncate.Ellipsis(failure.Error(), failureBytes)}, nil
}

// JudgeCallsInput asks for a judge's scores of a step's calls.
type JudgeCallsInput struct {
	StepGroups
}

// JudgeCallsResult names the blob with the scores, a record.Judgments.
type JudgeCallsResult struct {
	Judgments string             `json:"judgments"`
	Metrics   map[string]float64 `json:"metrics"`
}

// judgeSlack is how long one answer of a judge may take beyond its own limit before it
// counts as no progress. The store needs this time.
const judgeSlack = 20 * time.Second

// JudgeCalls lets the spec's judge score every call of the attempts that count. Calls
// that were judged before, by an earlier execution or for another run, are not judged
// again. If the judge can't be reached, that is an error that is tried again. Unreadable
// answers, and more requests than the spec allows, end the run. No attempt gets an
// invented score instead: which attempts get one would depend on earlier judgments, so
// equal runs would learn different things.
func (c *Coordinator) JudgeCalls(ctx context.Context, in JudgeCallsInput) (_ JudgeCallsResult, err error) {
	defer temporalError(&err)
	attempts, s, err := c.evidence(ctx, in)
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	o, err := judgeOptions(s.Credit)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	j := judge.New(o, c.Ledger, in.Run, in.Policy, in.Step)
	defer j.Close()
	scores, err := beating(ctx, beat{progress: func() any { return j.Progress() }, stall: o.Timeout + judgeSlack},
		func(ctx context.Context) ([][]float64, error) { return j.Scores(ctx, attempts) })
	switch {
	case errors.Is(err, judge.ErrNonsense), errors.Is(err, judge.ErrRequests), errors.Is(err, judge.ErrRefused):
		if errors.Is(err, judge.ErrRequests) {
			return JudgeCallsResult{}, update.Final(fmt.Errorf("step %d of %s: %w; change credit.judge and start another run: what is judged stays judged", in.Step, in.Run, err))
		}
		return JudgeCallsResult{}, invalid(fmt.Errorf("step %d of %s: %w; mend the judge and retry the run, or change credit.judge and start another run: what is judged stays judged", in.Step, in.Run, err))
	case err != nil:
		return JudgeCallsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	return c.storeJudgments(ctx, in, scores)
}

// evidence returns the parts of each attempt that the judge reads.
func (c *Coordinator) evidence(ctx context.Context, in JudgeCallsInput) ([]judge.Attempt, spec.Spec, error) {
	r, err := readRun(ctx, in.Run, c.Runs, c.Blobs)
	if err != nil {
		return nil, spec.Spec{}, err
	}
	if r.spec.Credit.Judge == nil {
		return nil, r.spec, invalid(errors.New("the spec has no credit.judge"))
	}
	codec, err := c.Codecs.named(r.spec.Model.Codec)
	if err != nil {
		return nil, r.spec, err
	}
	of := addresses(in.StepGroups)
	trajectories, err := c.Attempts.Trajectories(ctx, of)
	if err != nil {
		return nil, r.spec, fmt.Errorf("read its trajectories: %w", err)
	}
	var out []judge.Attempt
	for _, g := range in.Groups {
		task, err := r.taskOf(g, in.Step)
		if err != nil {
			return nil, r.spec, err
		}
		for _, reward := range g.Rewards {
			if len(out) == len(trajectories) {
				return nil, r.spec, invalid(fmt.Errorf("task %d has %d attempts and %d rewards", g.Task, len(g.Attempts), len(g.Rewards)))
			}
			t := trajectories[len(out)]
			if t.TaskID != task.ID {
				return nil, r.spec, invalid(fmt.Errorf("%s tried task %q, but the stream has task %q there", t.Address, t.TaskID, task.ID))
			}
			history, err := c.Attempts.Exchanges(ctx, t.Address)
			if err != nil {
				return nil, r.spec, err
			}
			out = append(out, judge.Of(t.Attempt, history, task, reward, codec))
		}
	}
	return out, r.spec, nil
}

// taskOf returns the task of a group of a step: the task at the group's ordinal in its
// stream. The groups of a trial belong to no stream: their ordinals are the indices of
// their tasks in the split.
func (r *cachedRun) taskOf(g Group, step int) (tasks.Task, error) {
	if g.Kind == record.Try {
		return r.task(g.Kind, g.Task)
	}
	n := len(r.tasks[record.Train])
	if n == 0 {
		return tasks.Task{}, invalid(fmt.Errorf("run %s has no train split", r.run.Name))
	}
	if g.Kind == record.Reserve {
		return r.task(g.Kind, stream.Reserve(r.spec.Seed, n, step, g.Task))
	}
	index, _ := stream.At(r.spec.Seed, n, g.Task)
	return r.task(record.Train, index)
}

// judgeOptions returns the options of the spec's judge. A missing API key is an error
// that is tried again, because the person who starts the worker can set one.
func judgeOptions(c spec.Credit) (judge.Options, error) {
	of := c.Judge
	o := judge.Options{
		URL: of.URL, Model: of.Model, Rubric: of.Rubric, Requests: of.Requests, Timeout: time.Duration(of.Seconds * float64(time.Second)),
	}
	if of.Key == "" {
		return o, nil
	}
	if o.Key = os.Getenv(of.Key); o.Key == "" {
		return o, fmt.Errorf("credit.judge.key: the environment variable %s is not set for this worker: start it with the judge's API key there", of.Key)
	}
	return o, nil
}

func (c *Coordinator) storeJudgments(ctx context.Context, in JudgeCallsInput, scores [][]float64) (JudgeCallsResult, error) {
	data, err := json.Marshal(record.Judgments{Scores: scores})
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("encode the judgments of step %d: %w", in.Step, err)
	}
	digest, err := c.Blobs.Put(ctx, data)
	if err != nil {
		return JudgeCallsResult{}, fmt.Errorf("store the judgments of step %d: %w", in.Step, err)
	}
	judgments, err := c.Ledger.Judged(ctx, in.Run, in.Policy, in.Step)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	nonsense, err := c.Ledger.Nonsense(ctx, in.Run, in.Policy, in.Step)
	if err != nil {
		return JudgeCallsResult{}, err
	}
	calls, sum := 0, 0.0
	for _, of := range scores {
		for _, s := range of {
			calls, sum = calls+1, sum+s
		}
	}
	return JudgeCallsResult{Judgments: digest, Metrics: map[string]float64{
		"judge/score":       sum / float64(max(1, calls)),
		"judge/calls":       float64(calls),
		"judge/requests":    float64(judgments + len(nonsense)), // requests of this execution; earlier judgments needed none
		"judge/asked_again": float64(len(nonsense)),
	}}, nil
}
