package page

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// mostSamples of a group are shown beside each other.
const mostSamples = 64

// groupBody is the page of a group.
type groupBody struct {
	Kind    trace.Kind
	Step    int
	TaskID  string
	Name    string
	Input   format.Clipped
	Answer  format.Clipped
	Rewards spread
	Reason  string // why the task was quarantined
	Chosen  string // why a curriculum chose it, empty without one
	Samples []sampleCard
	Hidden  int // samples that are not shown
}

// sampleCard is one sample of a group, by its latest attempt.
type sampleCard struct {
	trace.Attempt
	Path      string
	Ending    string // how it ended, or that it runs
	Advantage *averaged
	Trained   int // tokens
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
	var rewards []float64
	var earlier []link
	for i, t := range trials {
		switch {
		case i+1 < len(trials) && trials[i+1].RolloutID == t.RolloutID:
			earlier = append(earlier, link{Text: strconv.Itoa(t.Attempt), Path: attemptPath(t.Address)})
		case len(b.Samples) == mostSamples:
			b.Hidden++
		default:
			card, err := s.sampleCard(ctx, t, credit)
			if err != nil {
				return view{}, err
			}
			card.Ending = outcomeText(card.Outcome, false, run.Status)
			card.Earlier, earlier = earlier, nil
			b.TaskID, b.Samples = t.TaskID, append(b.Samples, card)
			if card.Reward != nil {
				rewards = append(rewards, *card.Reward)
			}
		}
	}
	b.Rewards = spreadOf(rewards)
	if task, ok := s.task(ctx, run, at.Kind, b.TaskID); ok {
		b.Input, b.Answer = format.Clip(task.Input, format.MostOfMessage), format.Clip(task.Answer, format.MostOfResult)
	}
	quarantined, err := s.quarantined(ctx, run.Name, at.Kind, at.Step)
	if err != nil {
		return view{}, err
	}
	for _, q := range quarantined {
		if q.Task == at.Task {
			b.Reason = format.Clip(q.Reason, format.MostOfResult).Text
		}
	}
	if c, ok, err := s.choice(ctx, at); err != nil {
		return view{}, err
	} else if d := c.DrawOf(at.Kind, at.Task); ok && d.Task >= 0 {
		b.Chosen = format.Clip(c.Because(d), format.MostOfResult).Text
	}
	if len(b.Samples) == 0 && b.Reason == "" {
		return view{}, fmt.Errorf("%w: %s-%d of run %s has no task %d", trace.ErrNotFound, at.Kind, at.Step, run.Name, at.Task)
	}
	b.Name = taskName(b.TaskID, at.Task)
	v := runView("group", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"},
		link{Text: stepName(at.Kind, at.Step), Path: stepPath(run.Name, at.Kind, at.Step)}, link{Text: b.Name})
	v.Body = b
	return v, nil
}

// taskName is what people call a task; its place will do where nothing was tried.
func taskName(id string, place int) string {
	if id == "" {
		return fmt.Sprintf("Task %d", place)
	}
	return "Task " + format.Clip(id, format.MostOfLine).Text
}

func (s *Server) sampleCard(ctx context.Context, t record.Trial, credit map[string]credited) (sampleCard, error) {
	a, err := s.Records.Attempt(ctx, t.Address)
	if err != nil {
		return sampleCard{}, err
	}
	card := sampleCard{Attempt: a, Path: attemptPath(a.Address), Result: format.Clip(a.Result, format.MostOfResult), Error: format.FirstLine(a.Error)}
	if c, ok := credit[a.Address.String()]; ok {
		card.Advantage, card.Trained = c.advantage.known(), c.trained
	}
	return card, nil
}

// task finds a task of a run by its id; it is not there where its split is not kept.
func (s *Server) task(ctx context.Context, run record.Run, kind trace.Kind, id string) (tasks.Task, bool) {
	if kind == trace.Reserve || kind == trace.Try {
		kind = trace.Train
	}
	split := run.Splits[kind]
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

// averaged is the mean of what is given to each trained token, and between which values
// that is: a critic, a judge or a signal gives each call or token its own.
type averaged struct {
	Mean, Low, High float64
	Count           int
}

// add takes one more token into the mean.
func (a *averaged) add(v float64) {
	if a.Count == 0 {
		a.Low, a.High = v, v
	}
	a.Count++
	a.Mean += (v - a.Mean) / float64(a.Count)
	a.Low, a.High = min(a.Low, v), max(a.High, v)
}

// known is nil where there is no token.
func (a averaged) known() *averaged {
	if a.Count == 0 {
		return nil
	}
	return &a
}

// String is the mean for people.
func (a averaged) String() string { return format.Signed(&a.Mean) }

// Range says between which values the tokens are, and nothing where all have the same.
func (a averaged) Range() string {
	if a.High-a.Low < 0.0005 { // with three decimals they look the same
		return ""
	}
	return format.Signed(&a.Low) + " to " + format.Signed(&a.High)
}

// credited is what the batch of a step made of an attempt.
type credited struct {
	advantage averaged // over its trained tokens
	trained   int
	// calls are the tokens of each call in the batch, by Seq, in order.
	calls map[int]callCredit
}

// callCredit is what a batch, and who trained on it, say of the tokens of a call. Scores
// are NaN where they are not known.
type callCredit struct {
	advantages         []float32
	sampled            []bool
	trainer, entropies []float32
}

// batch is the one of the step of an attempt; nil where none was made.
func (s *Server) batch(ctx context.Context, a trace.Address) (*model.Batch, error) {
	if a.Kind != trace.Train && a.Kind != trace.Reserve {
		return nil, nil
	}
	entry, err := s.Records.Batch(ctx, a.Run, model.DefaultPolicy, a.Step)
	if errors.Is(err, trace.ErrNotFound) {
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

// credit is what the batch of the step of an attempt made of the attempts of its group, by
// address.
func (s *Server) credit(ctx context.Context, a trace.Address) (map[string]credited, error) {
	batch, err := s.batch(ctx, a)
	if err != nil || batch == nil {
		return nil, err
	}
	group := make(map[int]*credited, mostSamples) // by trajectory
	for i, t := range batch.Trajectories {
		if one, err := trace.ParseAddress(t.Attempt); err == nil && one.Kind == a.Kind && one.Task == a.Task {
			group[i] = &credited{trained: t.Trained}
		}
	}
	for _, row := range batch.Rows {
		if one := group[row.Trajectory]; one != nil {
			one.average(row)
		}
	}
	out := make(map[string]credited, len(group))
	for i, one := range group {
		out[batch.Trajectories[i].Attempt] = *one
	}
	return out, nil
}

// average takes the trained tokens of a row into the attempt's mean.
func (c *credited) average(row model.BatchRow) {
	for i, sampled := range row.Sampled {
		if sampled {
			c.advantage.add(float64(row.Advantages[i]))
		}
	}
}

// tokenCredit is what the batch made of one attempt, token by token; nil where it was not
// trained.
func (s *Server) tokenCredit(ctx context.Context, a trace.Address) (*credited, error) {
	batch, err := s.batch(ctx, a)
	if err != nil || batch == nil {
		return nil, err
	}
	scores, err := s.trainerScores(ctx, a, batch)
	if err != nil {
		return nil, err
	}
	var one *credited
	for i, t := range batch.Trajectories {
		if t.Attempt == a.String() {
			one = &credited{trained: t.Trained, calls: map[int]callCredit{}}
			one.add(batch.Rows, i, scores)
		}
	}
	return one, nil
}

// trainerScores are what the trainer of the step of an attempt gave the trained tokens of
// its batch; none where no version of ours was made of it, or the blob is gone.
func (s *Server) trainerScores(ctx context.Context, a trace.Address, batch *model.Batch) (model.Scores, error) {
	version, err := s.Records.Version(ctx, model.VersionID{Run: a.Run, Policy: model.DefaultPolicy, Number: a.Step})
	if errors.Is(err, trace.ErrNotFound) || err == nil && version.Scores == "" {
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
	trained := 0
	for _, r := range batch.Rows {
		trained += r.Trained()
	}
	if errors.Is(err, trace.ErrNotFound) || err == nil && (scores.Batch != version.Batch || len(scores.Logprobs) != trained) {
		return model.Scores{}, nil
	}
	return scores, err
}

// add takes the tokens of a trajectory out of the rows of its batch.
func (c *credited) add(rows []model.BatchRow, trajectory int, scores model.Scores) {
	first := 0 // trained token of the row
	for _, row := range rows {
		next := first + row.Trained()
		if row.Trajectory == trajectory {
			c.average(row)
			c.addRow(row, scores, first)
		}
		first = next
	}
}

func (c *credited) addRow(row model.BatchRow, scores model.Scores, trained int) {
	for i, seq := range row.Calls {
		trainer, entropy := float32(math.NaN()), float32(math.NaN())
		if row.Sampled[i] {
			if len(scores.Logprobs) > 0 {
				trainer, entropy = scores.Logprobs[trained], scores.Entropies[trained]
			}
			trained++
		}
		if seq < 0 {
			continue
		}
		call := c.calls[int(seq)]
		call.advantages, call.sampled = append(call.advantages, row.Advantages[i]), append(call.sampled, row.Sampled[i])
		call.trainer, call.entropies = append(call.trainer, trainer), append(call.entropies, entropy)
		c.calls[int(seq)] = call
	}
}
