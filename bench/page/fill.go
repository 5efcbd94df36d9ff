package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

const (
	name           = "long"
	otherName      = "other" // a run without attempts, to compare with
	seed           = 7
	tasksPerStep   = 16
	samplesPerTask = 8
	callsPerTry    = 8
	turns          = 200
	tokensPerTurn  = 300
	// gateEvery is how many versions lie between evaluations.
	gateEvery = 10
)

// filler makes the long run.
type filler struct {
	store *store.Store
	blobs *blob.Store
	url   string
	steps int
	tasks []tasks.Task
}

func (f *filler) fill(ctx context.Context) error {
	last, err := f.store.LastStep(ctx, name, model.DefaultPolicy)
	switch {
	case err == nil && last.Step >= f.steps:
		return nil // it was filled before
	case err == nil:
		return fmt.Errorf("its run %s has %d steps: give another -dir or -store", name, last.Step)
	case !errors.Is(err, record.ErrNotFound):
		return err
	}
	began := time.Now()
	for i := range tasksPerStep {
		f.tasks = append(f.tasks, tasks.Task{ID: fmt.Sprintf("task-%d", i), Input: fmt.Sprintf("What is %d + %d?", i, i), Answer: fmt.Sprint(2 * i)})
	}
	run, err := f.run(ctx)
	if err != nil {
		return err
	}
	_, created, err := f.store.CreateRun(ctx, run)
	if err == nil && !created {
		err = errors.New("it was left half filled: give another -dir or -store")
	}
	if err != nil {
		return err
	}
	other := run
	other.Name, other.WorkflowID = otherName, otherName
	if _, _, err := f.store.CreateRun(ctx, other); err != nil {
		return err
	}
	if err := f.step(ctx); err != nil {
		return err
	}
	for sample := range samplesPerTask {
		for task := range tasksPerStep {
			if err := f.attempt(ctx, record.RolloutID{Run: name, Kind: record.Gate, Task: task, Sample: sample}, float64((sample+task)%2)); err != nil {
				return err
			}
		}
	}
	if err := f.long(ctx); err != nil {
		return err
	}
	if err := f.multiply(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "filled in %.0f s\n", time.Since(began).Seconds())
	return nil
}

func (f *filler) run(ctx context.Context) (record.Run, error) {
	sp := spec.Spec{
		Seed: seed, Training: spec.Training{Steps: f.steps + 1, TasksPerStep: tasksPerStep, SamplesPerTask: samplesPerTask},
		Agent: spec.Agent{Command: []string{"agent"}},
	}.WithDefaults()
	text, err := json.Marshal(sp)
	if err != nil {
		return record.Run{}, err
	}
	data, err := tasks.Encode(f.tasks)
	if err != nil {
		return record.Run{}, err
	}
	digest, err := f.blobs.Put(ctx, data)
	split := record.Split{Digest: digest, Count: len(f.tasks)}
	return record.Run{Name: name, WorkflowID: name, ExecutionID: "e", Spec: text, Splits: map[record.Kind]record.Split{record.Train: split, record.Gate: split}}, err
}

// step makes the attempts and the batch of the first step.
func (f *filler) step(ctx context.Context) error {
	in := activities.AssignCreditInput{Run: name, Policy: model.DefaultPolicy, Step: 1}
	for task := range tasksPerStep {
		g := activities.Group{Task: task}
		for sample := range samplesPerTask {
			id := record.RolloutID{Run: name, Kind: record.Train, Step: 1, Task: task, Sample: sample}
			reward := float64((sample*7 + task) % 3 / 2)
			if err := f.attempt(ctx, id, reward); err != nil {
				return err
			}
			g.Attempts, g.Rewards = append(g.Attempts, 1), append(g.Rewards, reward)
		}
		in.Groups = append(in.Groups, g)
	}
	coordinator := activities.Coordinator{Runs: f.store, Ledger: f.store, Attempts: f.store, Blobs: f.blobs, Codecs: dialog.Named}
	_, err := coordinator.AssignCredit(ctx, in)
	return err
}

func (f *filler) begin(ctx context.Context, id record.RolloutID) (record.Address, error) {
	index, _ := stream.At(seed, len(f.tasks), id.Task)
	return f.store.BeginAttempt(ctx, id, f.tasks[index].ID, record.Terms{Policy: model.DefaultPolicy, Version: max(0, id.Step-1), Codec: dialog.CompactName, Temperature: 1}, "c0ffee")
}

func (f *filler) attempt(ctx context.Context, id record.RolloutID, reward float64) error {
	a, err := f.begin(ctx, id)
	if err != nil {
		return err
	}
	d := conversation{address: a}
	for range callsPerTry {
		call, err := d.next(24)
		if err == nil {
			err = f.store.AppendCall(ctx, &call)
		}
		if err != nil {
			return err
		}
	}
	return f.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: "42"})
}

// long makes the attempt with many turns.
func (f *filler) long(ctx context.Context) error {
	a, err := f.begin(ctx, record.RolloutID{Run: name, Kind: record.Try, Step: 1})
	if err != nil {
		return err
	}
	d := conversation{address: a}
	for range turns {
		call, err := d.next(tokensPerTurn)
		if err == nil {
			err = f.store.AppendCall(ctx, &call)
		}
		if err != nil {
			return err
		}
	}
	one := 1.0
	return f.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &one, Result: "42"})
}

// conversation is an agent that asks a model and a tool in turn.
type conversation struct {
	address  record.Address
	messages []map[string]any
	seq      int
	last     []int32
}

func (d *conversation) next(tokens int) (record.Exchange, error) {
	codec := dialog.Compact()
	role := map[string]any{"role": "user", "content": fmt.Sprintf("turn %d of %s", d.seq, d.address)}
	if d.seq > 0 {
		role = map[string]any{"role": "tool", "tool_call_id": fmt.Sprint(d.seq), "content": fmt.Sprintf("the tool says %d", d.seq)}
	}
	d.messages = append(d.messages, role)
	request, err := json.Marshal(map[string]any{"model": "m", "messages": d.messages})
	if err != nil {
		return record.Exchange{}, err
	}
	text := make([]byte, tokens)
	for i := range text {
		text[i] = "0123456789+-*"[(i*d.seq+i+d.address.Sample)%13]
	}
	said := map[string]any{"role": "assistant", "content": string(text)}
	d.messages = append(d.messages, said)
	response, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": said}}})
	if err != nil {
		return record.Exchange{}, err
	}
	completion := codec.Encode(string(text))
	logprobs := make([]float32, len(completion))
	for i := range logprobs {
		logprobs[i] = -float32(i%40) / 10
	}
	prompt := append(append([]int32{}, d.last...), codec.Encode("1+1")...)
	call := record.Exchange{Call: record.Call{
		Address: d.address, Seq: d.seq, ID: fmt.Sprintf("chatcmpl-%d", d.seq), Parent: d.seq - 1, Agent: "solo", Policy: model.DefaultPolicy, Version: max(0, d.address.Step-1),
		Key: fmt.Sprint(d.seq), Prompt: prompt, Completion: completion, Logprobs: logprobs, Temperature: 1, Finish: "stop", Started: time.Unix(int64(10*d.seq), 0), Duration: time.Second,
	}, Request: request, Response: response}
	d.last = append(append([]int32{}, prompt...), completion...)
	d.seq++
	return call, nil
}
