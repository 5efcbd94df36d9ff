package checker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

const (
	train   = "train"
	reserve = "reserve"
)

// prompt is a group of a step.
type prompt struct {
	kind       string
	step, task int
}

// checkPrompts follows every prompt from the stream of tasks over the child
// workflow to the batch.
func checkPrompts(f *Findings, e Evidence) {
	r := e.Records
	issued := map[prompt]Issued{}
	choices := map[int]Choice{}
	for _, c := range r.Choices {
		choices[c.Step] = c
	}
	if r.Chosen != nil {
		checkChoices(f, e)
	}
	for _, g := range e.History.Issued {
		p := prompt{g.Kind, g.Step, g.Task}
		if _, twice := issued[p]; twice {
			f.wrong("%s-%d/%d was issued twice", g.Kind, g.Step, g.Task)
			f.PromptsDuplicated += g.Samples
		}
		issued[p] = g
		checkIndex(f, r, choices, g)
	}
	quarantined := map[prompt]bool{}
	for _, q := range r.Quarantined {
		quarantined[prompt{q.Kind, q.Step, q.Task}] = true
	}
	for step := 1; step <= r.Steps; step++ {
		f.Prompts += r.TasksPer * r.Samples
		flat := flat(f, e, step, issued)
		checkIssued(f, r, step, issued, quarantined, flat)
		checkTrained(f, e, step, issued, flat)
	}
	for step := range e.Trained {
		if step < 1 || step > r.Steps {
			f.wrong("there is a batch of step %d, and no such step", step)
			f.PromptsDuplicated += len(e.Trained[step])
		}
	}
	for _, g := range e.History.Issued {
		if g.Step < 1 || g.Step > r.Steps {
			f.wrong("%s-%d/%d was issued for no step of the run", g.Kind, g.Step, g.Task)
		}
	}
}

// checkIndex compares the task of a group with the stream, or with a curriculum's choice.
func checkIndex(f *Findings, r Records, choices map[int]Choice, g Issued) {
	var want int
	switch {
	case r.Chosen != nil:
		var known bool
		if want, known = chosen(choices, r, g); !known {
			f.wrong("%s-%d/%d was issued, and no choice has it", g.Kind, g.Step, g.Task)
			return
		}
	case g.Kind == train:
		want, _ = stream.At(r.Seed, r.TrainTasks, g.Task)
	case g.Kind == reserve:
		want = stream.Reserve(r.Seed, r.TrainTasks, g.Step, g.Task)
	default:
		f.wrong("a group of kind %q was issued", g.Kind)
		return
	}
	if g.Index != want {
		f.wrong("%s-%d/%d is task %d of its split, the seed says %d", g.Kind, g.Step, g.Task, g.Index, want)
	}
	if g.Samples != r.Samples {
		f.wrong("%s-%d/%d has %d samples, the spec says %d", g.Kind, g.Step, g.Task, g.Samples, r.Samples)
	}
}

// checkIssued finds prompts of the stream for which no group was issued, and groups that
// don't belong to their step. A prompt may be quarantined, with its reason recorded, or
// flat; a reserve then replaces it.
func checkIssued(f *Findings, r Records, step int, issued map[prompt]Issued, quarantined, flat map[prompt]bool) {
	first, missing, whole := (step-1)*r.TasksPer, 0, 0
	for task := first; task < first+r.TasksPer; task++ {
		p := prompt{train, step, task}
		if _, ok := issued[p]; !ok && !quarantined[p] {
			f.wrong("task %d of the stream was not issued in step %d", task, step)
			missing++
		}
	}
	for p, g := range issued {
		if p.step != step {
			continue
		}
		if p.kind == train && (p.task < first || p.task >= first+r.TasksPer) {
			f.wrong("task %d of the stream was issued in step %d, which is not its own", p.task, step)
			f.PromptsDuplicated += g.Samples
		}
		switch {
		case g.Attempts == nil:
			f.wrong("%s-%d/%d was issued and did not return", p.kind, p.step, p.task)
		case flat[p]:
		case g.Quarantine == "":
			whole++
		case !quarantined[p]:
			f.wrong("%s-%d/%d was set aside, and the store does not say so", p.kind, p.step, p.task)
		}
	}
	switch short := r.TasksPer - missing - whole; {
	case short > 0:
		f.wrong("step %d has %d groups to train on, %d less than it should", step, whole, short)
		missing += short
	case whole > r.TasksPer:
		f.wrong("step %d has %d groups to train on, %d more than it should", step, whole, whole-r.TasksPer)
	}
	f.PromptsSkipped += missing * r.Samples
}

// flat returns the groups of a step that were left out of its batch because all their
// rewards are equal. It reports more of them than the spec allows as wrong.
func flat(f *Findings, e Evidence, step int, issued map[prompt]Issued) map[prompt]bool {
	if e.Records.FlatLimit == 0 {
		return nil
	}
	trained := map[prompt]bool{}
	for _, t := range e.Trained[step] {
		trained[prompt{t.Kind, t.Step, t.Task}] = true
	}
	out := map[prompt]bool{}
	for p, g := range issued {
		if p.step != step || trained[p] || g.Quarantine != "" || len(g.Rewards) == 0 || slices.Min(g.Rewards) != slices.Max(g.Rewards) {
			continue
		}
		out[p] = true
	}
	if len(out) > e.Records.FlatLimit {
		f.wrong("step %d left out %d groups whose rewards are all equal, and may %d", step, len(out), e.Records.FlatLimit)
	}
	for p := range out {
		f.PromptsFlat += issued[p].Samples
	}
	return out
}

// checkTrained compares a batch with the attempts that count.
func checkTrained(f *Findings, e Evidence, step int, issued map[prompt]Issued, flat map[prompt]bool) {
	trained := map[RolloutAddress]int{} // attempt
	outcome := map[Trained]string{}
	for _, a := range e.Records.Attempts {
		outcome[Trained{a.RolloutAddress, a.Number}] = a.Outcome
	}
	for _, t := range e.Trained[step] {
		name := fmt.Sprintf("%s-%d/%d/%d/%d", t.Kind, t.Step, t.Task, t.Sample, t.Attempt)
		if _, twice := trained[t.RolloutAddress]; twice {
			f.wrong("%s is in the batch of step %d a second time", name, step)
			f.PromptsDuplicated++
			continue
		}
		trained[t.RolloutAddress] = t.Attempt
		g, ok := issued[prompt{t.Kind, t.Step, t.Task}]
		if !ok || t.Step != step || t.Sample >= len(g.Attempts) || g.Quarantine != "" {
			f.wrong("%s is in the batch of step %d and does not belong there", name, step)
			f.PromptsDuplicated++
			continue
		}
		if g.Attempts[t.Sample] != t.Attempt {
			f.wrong("%s is in the batch of step %d, and attempt %d counts", name, step, g.Attempts[t.Sample])
		}
		if o := outcome[t]; o != "completed" && o != "agent_failed" {
			f.wrong("%s was trained on with the outcome %q", name, o)
		}
		if t.Kind == reserve {
			f.PromptsReserve++
		}
	}
	for p, g := range issued {
		if p.step != step || g.Quarantine != "" || flat[p] {
			continue
		}
		for sample := range g.Attempts {
			if _, ok := trained[RolloutAddress{p.kind, p.step, p.task, sample}]; !ok {
				f.wrong("%s-%d/%d/%d is not in the batch of step %d", p.kind, p.step, p.task, sample, step)
				f.PromptsSkipped++
			}
		}
	}
}

// Choice holds the tasks that the store says a step was to attempt: first those of its
// batch, then reserves.
type Choice struct {
	Step  int
	Tasks []int // indices in the train split
	Stage int   // from 0
	Since int   // first step of the stage
}

// chosen returns the task that a group should have under a curriculum.
func chosen(choices map[int]Choice, r Records, g Issued) (int, bool) {
	place := g.Task - (g.Step-1)*r.TasksPer
	if g.Kind == reserve {
		place = r.TasksPer + g.Task
	}
	c, ok := choices[g.Step]
	if !ok || place < 0 || len(c.Tasks) == 0 {
		return 0, false
	}
	return c.Tasks[place%len(c.Tasks)], true
}

// checkChoices compares the recorded choices of a curriculum with those that follow from
// the rewards in Temporal's history. The function that chooses is the product's, but the
// evidence that it gets here is not.
func checkChoices(f *Findings, e Evidence) {
	list, err := tasks.Open(e.Records.Chosen.Tasks.Train)
	if err != nil {
		f.wrong("the tasks can't be read: %v", err)
		return
	}
	evidence := curriculum.Evidence{Spec: *e.Records.Chosen, Tasks: list}
	for _, g := range e.History.Issued {
		if g.Index < 0 || g.Index >= len(list) {
			f.wrong("%s-%d/%d is task %d of %d", g.Kind, g.Step, g.Task, g.Index, len(list))
			return
		}
		if g.Quarantine != "" {
			evidence.Quarantines = append(evidence.Quarantines, record.Quarantine{Step: g.Step, Kind: record.Kind(g.Kind), Task: g.Task, Index: g.Index})
			continue
		}
		for sample, reward := range g.Rewards {
			evidence.Scores = append(evidence.Scores, record.StepScore{
				Kind: record.Kind(g.Kind), Step: g.Step, TaskID: list[g.Index].ID, Score: record.Score{Task: g.Task, Sample: sample, Reward: reward},
			})
		}
	}
	for _, of := range e.Records.Evaluations {
		evidence.Evaluations = append(evidence.Evaluations, record.Evaluation{EvaluationResult: record.EvaluationResult{Kind: record.Kind(of.Kind), Version: of.Version, Mean: of.Mean}})
	}
	for i, made := range e.Records.Choices {
		if made.Step != i+1 {
			f.wrong("the choice of step %d is not on record", i+1)
			return
		}
		want, err := evidence.Choose(made.Step)
		if err != nil {
			f.wrong("the choice of step %d: %v", made.Step, err)
			return
		}
		if difference := differs(made, want); difference != "" {
			f.wrong("the choice of step %d: %s", made.Step, difference)
		}
		evidence.Before = &record.Choice{Step: made.Step, Stage: made.Stage, Since: made.Since}
	}
	if n := len(e.Records.Choices); n < e.Records.Steps {
		f.wrong("%d choices are on record for %d steps", n, e.Records.Steps)
	}
}

func differs(made Choice, want record.Choice) string {
	if made.Stage != want.Stage || made.Since != want.Since || len(made.Tasks) != len(want.Draws) {
		return fmt.Sprintf("%d tasks of stage %d since step %d, the history gives %d of stage %d since step %d",
			len(made.Tasks), made.Stage, made.Since, len(want.Draws), want.Stage, want.Since)
	}
	drawn := map[int]bool{}
	for i, task := range made.Tasks {
		if drawn[task] {
			return fmt.Sprintf("task %d is drawn twice", task)
		}
		drawn[task] = true
		if task != want.Draws[i].Task {
			return fmt.Sprintf("place %d is task %d, the history gives task %d", i, task, want.Draws[i].Task)
		}
	}
	return ""
}

// Trained is an attempt from which a batch was made.
type Trained struct {
	RolloutAddress
	Attempt int
}

// ReadBatch reads the attempts of a batch from its file in a directory of blobs, and
// checks the file against its digest.
func ReadBatch(blobs, digest string) ([]Trained, error) {
	out, err := readBatch(blobs, digest)
	if err != nil {
		return nil, fmt.Errorf("read batch %s: %w", digest, err)
	}
	return out, nil
}

func readBatch(blobs, digest string) ([]Trained, error) {
	file, err := readBatchFile(blobs, digest)
	if err != nil {
		return nil, err
	}
	return file.trajectories()
}

// batchFile is a batch in a safetensors file: the header, and the arrays that it describes.
type batchFile struct {
	header map[string]json.RawMessage
	data   []byte
}

// readBatchFile reads the file of a batch, and checks it against its digest.
func readBatchFile(blobs, digest string) (batchFile, error) {
	var out batchFile
	data, err := readBlob(blobs, digest)
	if err != nil {
		return out, err
	}
	// The header's length comes first, then the header.
	if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
		return out, errors.New("it is cut short")
	}
	end := 8 + binary.LittleEndian.Uint64(data)
	out.data = data[end:]
	return out, json.Unmarshal(data[8:end], &out.header)
}

// trajectories returns the attempts of the batch.
func (b batchFile) trajectories() ([]Trained, error) {
	var metadata map[string]string
	if err := json.Unmarshal(b.header["__metadata__"], &metadata); err != nil {
		return nil, err
	}
	var batch struct {
		Trajectories []struct {
			Attempt string `json:"attempt"`
		} `json:"trajectories"`
	}
	if err := json.Unmarshal([]byte(metadata["batch"]), &batch); err != nil {
		return nil, err
	}
	var out []Trained
	for _, t := range batch.Trajectories {
		attempt, err := parseAttempt(t.Attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, attempt)
	}
	return out, nil
}

// parseAttempt reads "run/kind-step/task/sample/attempt".
func parseAttempt(s string) (Trained, error) {
	var t Trained
	parts := strings.Split(s, "/")
	if len(parts) != 5 {
		return t, fmt.Errorf("%q names no attempt", s)
	}
	kind, step, _ := strings.Cut(parts[1], "-")
	t.Kind = kind
	for i, to := range []*int{&t.Step, &t.Task, &t.Sample, &t.Attempt} {
		n, err := strconv.Atoi([]string{step, parts[2], parts[3], parts[4]}[i])
		if err != nil {
			return t, fmt.Errorf("%q names no attempt", s)
		}
		*to = n
	}
	return t, nil
}
