package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/bench/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

const name = "grpo"

// fulgurite makes the steps in this process and prints each when it is on record.
func fulgurite(ctx context.Context, w work, dir string) (err error) {
	st, err := stack.Start(ctx, stack.Options{Dir: dir, Agents: agent.Registry{"ask": ask}, Log: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	spec, err := json.Marshal(w.spec())
	if err != nil {
		return err
	}
	handle, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name, TaskQueue: workflows.QueueTraining}, workflows.TrainingWorkflow,
		workflows.TrainingInput{Spec: spec})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- handle.Get(ctx, nil) }()
	began, seen := time.Now(), 0
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			ended = true
		case <-time.After(200 * time.Millisecond):
		}
		steps, err := st.Store.Steps(ctx, name, model.DefaultPolicy)
		if err != nil {
			return err
		}
		for ; seen < len(steps); seen++ {
			s := step{seconds: since(began), reward: steps[seen].Metrics["reward/mean"]}
			s.resident, s.peak = memory.Of("self")
			s.print(w.side("fulgurite"), seen+1)
			if err := w.profile(seen + 1); err != nil {
				return err
			}
			began = time.Now()
		}
	}
	bytes, err := size(st.Layout.Blobs())
	fmt.Printf("\n%s: %.1f MB on disk after %d versions and their batches\n", w.side("fulgurite"), float64(bytes)/1e6, w.steps+1)
	return err
}

// profile writes what the heap holds after some of the steps.
func (w work) profile(step int) (err error) {
	if w.heap == "" || step%10 != 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(w.heap, fmt.Sprintf("heap-%d.pb.gz", step)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}

// ask is the agent. It asks one question and gets one reply.
func ask(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	reply, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: env.Model, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: task.Input}},
	})
	if err != nil {
		return "", err
	}
	return reply.Choices[0].Message.Content, nil
}

// side names a row.
func (w work) side(program string) string {
	if w.rank == 0 {
		return program + ", all weights"
	}
	return fmt.Sprintf("%s, LoRA of rank %d", program, w.rank)
}

// spec returns a spec with the same settings as trainer.py.
func (w work) spec() map[string]any {
	of := map[string]any{"base": w.base, "codec": "template"}
	if w.rank > 0 {
		of["lora"] = map[string]any{"rank": w.rank, "alpha": 2 * w.rank}
	}
	training := map[string]any{
		"steps": w.steps, "tasks_per_step": w.tasks, "samples_per_task": w.samples,
		"optimizer": map[string]any{"learning_rate": 2e-5, "clip_norm": 1},
	}
	if w.keep > 0 {
		training["keep"] = map[string]any{"last": w.keep}
	}
	return map[string]any{
		"name": name, "model": of,
		"agent":    map[string]any{"func": "ask", "limits": map[string]any{"calls": 1, "seconds": 600}},
		"tasks":    map[string]any{"train": w.problems},
		"grader":   map[string]any{"type": "contains"},
		"sampling": map[string]any{"max_tokens": w.tokens},
		"training": training,
	}
}

// size returns the size of the files below a directory, in bytes.
func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
