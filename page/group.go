package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/samples"
	"github.com/fulgurite/fulgurite/page/trained"
	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

const (
	// maxSamples is how many samples of a group are shown next to each other.
	// maxWithDialog is how many of them show their dialogs, and callsCompared is how
	// many calls of each are read for that.
	maxSamples    = 64
	maxWithDialog = 32
	callsCompared = 6
	// bytesCompared is how many bytes of requests and replies are read for the
	// comparison.
	bytesCompared = 2 << 20
	// The room for all cards together, in bytes of text and in messages. Each card gets a
	// share of it, up to its own limit.
	roomOfCards, roomOfCard   = 64 << 10, 4 << 10
	linesOfCards, linesOfCard = 320, 12
)

// groupBody is the page of a group.
type groupBody struct {
	Kind record.Kind
	Step int
	cards
	Name   string
	Input  format.Clipped
	Answer format.Clipped
	Reason string // why the task was quarantined
	Chosen string // why a curriculum chose the task, or ""
	// Shared are the messages with which all samples begin.
	Shared     []messageBlock
	SharedMore int
	Around     []link // the neighbouring groups, and the step
}

// cards are the samples of a group.
type cards struct {
	TaskID  string
	Rewards spread
	Samples []sampleCard
	Hidden  int // samples that are not shown
}

// sampleCard is one sample of a group, by its latest attempt.
type sampleCard struct {
	record.Attempt
	Path      string
	Of        string // the version that made it, where samples of two are shown
	Side      string // the class of the column in which it then is
	Ending    string // how it ended, or that it runs
	Verdict   verdict.Verdict
	Advantage *trained.Mean
	CutOff    int            // replies that a limit of tokens ended
	Trained   int            // tokens
	Lines     []messageBlock // from where the samples differ on
	LinesMore int            // messages and calls that are not shown
	Compared  bool
	Greedy    bool // made at temperature 0, beside the samples of an evaluation
	Later     bool // it has calls that were not compared
	Result    format.Clipped
	Error     string
	Earlier   []link // attempts that it replaced
}

func (s *Server) group(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	at, err := placeOf(run.Name, r.PathValue("step"), r.PathValue("task"), "0", "1")
	if err != nil {
		return view{}, err
	}
	trials, err := s.Records.TrialsOfGroup(ctx, run.Name, at.Kind, at.Step, at.Task)
	if err != nil {
		return view{}, err
	}
	credit, err := s.credit(ctx, at)
	if err != nil {
		return view{}, err
	}
	b := groupBody{Kind: at.Kind, Step: at.Step}
	if b.cards, err = s.cardsOf(ctx, run, trials, credit); err != nil {
		return view{}, err
	}
	if b.Shared, b.SharedMore, err = s.compared(ctx, b.Samples); err != nil {
		return view{}, err
	}
	task, known := s.task(ctx, run, at.Kind, b.TaskID)
	b.judge(specOf(run), task)
	if known {
		b.Input, b.Answer = format.Clip(task.Input, format.MaxOfMessage), format.Clip(task.Answer, format.MaxOfResult)
	}
	quarantined, err := s.quarantined(ctx, run.Name, at.Kind, at.Step)
	if err != nil {
		return view{}, err
	}
	for _, q := range quarantined {
		if q.Task == at.Task {
			b.Reason = format.Clip(q.Reason, format.MaxOfResult).Text
		}
	}
	if c, ok, err := s.choice(ctx, at); err != nil {
		return view{}, err
	} else if d := c.DrawOf(at.Kind, at.Task); ok && d.Task >= 0 {
		b.Chosen = format.Clip(c.Because(d), format.MaxOfResult).Text
	}
	if len(b.Samples) == 0 && b.Reason == "" {
		return view{}, fmt.Errorf("%w: %s-%d of run %s has no task %d", record.ErrNotFound, at.Kind, at.Step, run.Name, at.Task)
	}
	b.Name = taskName(b.TaskID, at.Task)
	if b.Around, err = s.groupsBeside(ctx, run, at); err != nil {
		return view{}, err
	}
	v := runView("group", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"},
		stepLink(run, at.RolloutID), link{Text: b.Name})
	v.Body = b
	return v, nil
}

// cardsOf returns the samples of a group, each by its latest attempt.
func (s *Server) cardsOf(ctx context.Context, run record.Run, trials []record.Trial, credit map[string]trained.Attempt) (cards, error) {
	var out cards
	var rewards []float64
	var earlier []link
	sp := specOf(run)
	for i, t := range trials {
		switch {
		case i+1 < len(trials) && trials[i+1].RolloutID == t.RolloutID:
			earlier = append(earlier, link{Text: strconv.Itoa(t.Attempt), Path: attemptPath(t.Address)})
		case len(out.Samples) == maxSamples:
			out.Hidden++
		default:
			card, err := s.sampleCard(ctx, t, credit)
			if err != nil {
				return out, err
			}
			if card.Ending = words(record.StateOf(card.Outcome, false, run)); card.Outcome == record.AgentFailed {
				card.Ending = format.FirstLine(verdict.Failure(card.Failure))
			}
			card.CutOff, card.Greedy = t.CutOff, t.Sample >= greedyFrom(sp, t.Kind)
			card.Earlier, earlier = earlier, nil
			out.TaskID, out.Samples = t.TaskID, append(out.Samples, card)
			if card.Reward != nil && !card.Greedy {
				rewards = append(rewards, *card.Reward)
			}
		}
	}
	out.Rewards = spreadOf(rewards)
	return out, nil
}

// judge adds to each sample why it got its reward.
func (c cards) judge(sp spec.Spec, task tasks.Task) {
	for i := range c.Samples {
		v := verdict.Of(sp.Grader, task, c.Samples[i].Attempt)
		v.Text = format.FirstLine(v.Text)
		c.Samples[i].Verdict = v
	}
}

// compared adds to samples their dialogs, from where on they differ. It returns the messages
// with which all of them begin, and how many of these are left out.
func (s *Server) compared(ctx context.Context, all []sampleCard) (shared []messageBlock, more int, err error) {
	cards := all[:min(len(all), maxWithDialog)]
	dialogs, read := make([][]samples.Line, len(cards)), 0
	for i, card := range cards {
		if card.Calls == 0 || read > bytesCompared {
			continue
		}
		calls, err := s.Records.ExchangesBetween(ctx, card.Address, 0, callsCompared)
		if err != nil {
			return nil, 0, err
		}
		for _, call := range calls {
			read += len(call.Request) + len(call.Response)
		}
		dialogs[i] = samples.Dialog(calls)
	}
	common := samples.Common(dialogs)
	for i, lines := range dialogs {
		if len(lines) == 0 {
			continue
		}
		if shared == nil {
			shared, more = blocks(lines[:common], linesOfCard, 4*roomOfCard)
		}
		card := &cards[i]
		card.Compared, card.Later = true, card.Calls > callsCompared
		card.Lines, card.LinesMore = blocks(lines[common:], min(linesOfCard, linesOfCards/len(cards)), min(roomOfCard, roomOfCards/len(cards)))
	}
	return shared, more, nil
}

// blocks returns the first lines of a dialog, as many as fit, and how many are left out.
func blocks(lines []samples.Line, most, room int) (out []messageBlock, more int) {
	for i, l := range lines {
		if i == most || room <= 0 {
			return out, len(lines) - i
		}
		b := messageWithin(l.Message, room)
		if l.Sampled {
			b.Role = "sampled"
		}
		room -= b.size()
		out = append(out, b)
	}
	return out, 0
}

// groupsBeside returns links to the previous and the next group of the step, and to the
// step.
func (s *Server) groupsBeside(ctx context.Context, run record.Run, at record.Address) ([]link, error) {
	trials, err := s.Records.TrialsOfStep(ctx, at.Run, at.Kind, at.Step)
	if err != nil {
		return nil, err
	}
	sp := specOf(run)
	policy, baseline, _ := blockAt(run, sp, at.RolloutID)
	before, after := -1, -1
	for _, t := range trials { // by task
		if of, based, _ := blockAt(run, sp, t.RolloutID); of != policy || based != baseline {
			continue // it is of another evaluation under the same step
		}
		if t.Task < at.Task {
			before = t.Task
		}
		if t.Task > at.Task && after < 0 {
			after = t.Task
		}
	}
	to := func(text string, task int) link {
		id := at.RolloutID
		id.Task = task
		return link{Text: text, Path: groupPath(id)}
	}
	out := []link{{Text: "All groups", Path: stepLink(run, at.RolloutID).Path}}
	if before >= 0 {
		out = append([]link{to("Previous group", before)}, out...)
	}
	if after >= 0 {
		out = append(out, to("Next group", after))
	}
	return out, nil
}

// taskName returns the title of a task. A task without attempts is named by its position.
func taskName(id string, place int) string {
	if id == "" {
		return fmt.Sprintf("Task %d", place)
	}
	return "Task " + format.Clip(id, format.MaxOfLine).Text
}

func (s *Server) sampleCard(ctx context.Context, t record.Trial, credit map[string]trained.Attempt) (sampleCard, error) {
	a, err := s.Records.Attempt(ctx, t.Address)
	if err != nil {
		return sampleCard{}, err
	}
	card := sampleCard{Attempt: a, Path: attemptPath(a.Address), Result: format.Clip(a.Result, format.MaxOfResult/2), Error: format.FirstLine(verdict.Cause(a.Failure, a.Error))}
	if c, ok := credit[a.Address.String()]; ok {
		card.Advantage, card.Trained = c.Advantage.Known(), c.Tokens
	}
	return card, nil
}

// task finds a task of a run by its id. It returns false if the task's split was not
// kept.
func (s *Server) task(ctx context.Context, run record.Run, kind record.Kind, id string) (tasks.Task, bool) {
	split := run.Splits[kind.Split()]
	if split.Digest == "" {
		return tasks.Task{}, false
	}
	all, err := s.splits.Of(ctx, split.Digest, func(ctx context.Context) (map[string]tasks.Task, error) {
		data, err := s.Blobs.Get(ctx, split.Digest)
		if err != nil {
			return nil, err
		}
		list, err := tasks.Decode(data)
		out := make(map[string]tasks.Task, len(list))
		for _, t := range list {
			out[t.ID] = t
		}
		return out, err
	})
	t, ok := all[id]
	return t, ok && err == nil
}

// batch returns the batch of an attempt's step; nil if there is none.
func (s *Server) batch(ctx context.Context, a record.Address) (*model.Batch, error) {
	if a.Kind != record.Train && a.Kind != record.Reserve {
		return nil, nil
	}
	entry, err := s.Records.Batch(ctx, a.Run, model.DefaultPolicy, a.Step)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	batch, err := s.batches.Of(ctx, entry.Digest, func(ctx context.Context) (model.Batch, error) {
		data, err := s.Blobs.Get(ctx, entry.Digest)
		if err != nil {
			return model.Batch{}, fmt.Errorf("read the batch of step %d of %s: %w", a.Step, a.Run, err)
		}
		return hf.DecodeBatch(data)
	})
	return &batch, err
}

// credit returns the credit that the batch of the attempt's step gives the attempts of
// its group, by address.
func (s *Server) credit(ctx context.Context, a record.Address) (map[string]trained.Attempt, error) {
	batch, err := s.batch(ctx, a)
	if err != nil || batch == nil {
		return nil, err
	}
	return trained.Group(batch, a), nil
}

// tokenCredit returns the credit that the batch gives one attempt, token by token. It
// returns nil if the attempt was not trained.
func (s *Server) tokenCredit(ctx context.Context, a record.Address) (*trained.Attempt, error) {
	batch, err := s.batch(ctx, a)
	if err != nil || batch == nil {
		return nil, err
	}
	scores, err := s.trainerScores(ctx, a, batch)
	if err != nil {
		return nil, err
	}
	return trained.Of(batch, a, scores), nil
}

// servedCredit returns the credit that the batches of steps give a recorded conversation, token
// by token. It returns nil if no step has trained its replies by policy gradient, or if the
// batches were removed. Of the steps that used feedback on it, the newest maxLearned are read.
func (s *Server) servedCredit(ctx context.Context, at record.Address, policy string) (*trained.Attempt, error) {
	steps, err := s.Records.FeedbackSteps(ctx, at.Run, at.Task)
	if err != nil {
		return nil, err
	}
	var all *trained.Attempt
	for _, step := range steps[max(0, len(steps)-maxLearned):] {
		segment, err := s.Records.Segment(ctx, at.Run, policy, step)
		if errors.Is(err, record.ErrNotFound) || err == nil && segment.Objective != spec.ObjectiveReward {
			continue
		}
		if err != nil {
			return nil, err
		}
		made := record.Address{RolloutID: record.RolloutID{Run: at.Run, Kind: record.Train, Step: step}}
		batch, err := s.batch(ctx, made)
		if errors.Is(err, record.ErrNotFound) || err == nil && batch == nil {
			continue // the step is not made yet, or somebody had a user forgotten
		}
		if err != nil {
			return nil, err
		}
		scores, err := s.trainerScores(ctx, made, batch)
		if err != nil {
			return nil, err
		}
		one := trained.Of(batch, at, scores)
		switch {
		case one == nil || one.Tokens == 0:
		case all == nil:
			all = one
		default:
			all.Merge(one)
		}
	}
	return all, nil
}

// trainerScores returns the scores that the trainer of the attempt's step gave the
// trained tokens of the batch. The scores are empty if no version was made from the
// batch, if its trainer kept none, or if the blob was deleted.
func (s *Server) trainerScores(ctx context.Context, a record.Address, batch *model.Batch) (model.Scores, error) {
	version, err := s.Records.Version(ctx, model.VersionID{Run: a.Run, Policy: model.DefaultPolicy, Number: a.Step})
	if errors.Is(err, record.ErrNotFound) || err == nil && version.Scores == "" {
		return model.Scores{}, nil
	}
	if err != nil {
		return model.Scores{}, err
	}
	scores, err := s.scores.Of(ctx, version.Scores, func(ctx context.Context) (model.Scores, error) {
		data, err := s.Blobs.Get(ctx, version.Scores)
		if err != nil {
			return model.Scores{}, fmt.Errorf("read the scores of version %s: %w", version.VersionID, err)
		}
		return hf.DecodeScores(data)
	})
	tokens := 0
	for _, r := range batch.Rows {
		tokens += r.Trained()
	}
	if errors.Is(err, record.ErrNotFound) || err == nil && (scores.Batch != version.Batch || len(scores.Logprobs) != tokens) {
		return model.Scores{}, nil
	}
	return scores, err
}
