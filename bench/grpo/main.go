// Command grpo measures whole steps of GRPO on a published language model: rollouts by an
// agent over HTTP, credit assignment, the update, and writing and serving the new
// version. For each step it prints the seconds and the memory of the process, which
// contains everything: Temporal, the gateway, the sampler, the trainer and the agents.
//
//	go run ./bench/grpo -base DIR -steps 5
//	go run ./bench/grpo -base DIR -steps 5 -rank 8
//	go run ./bench/grpo -base DIR -steps 5 -python /path/to/venv/bin/python
//
// With -python, TRL's GRPOTrainer makes the same number of steps on the same prompts,
// rewards and settings, in its own process (trainer.py; it needs trl, and with -rank also
// peft). It has no agents: the trainer itself generates the replies.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
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

// work describes the work that both programs do.
type work struct {
	base           string // a Hugging Face directory
	steps          int
	tasks, samples int // of a step
	rank           int // of LoRA; 0 trains all weights
	tokens         int // maximum length of a reply
	keep           int // how many of the newest versions keep their files; 0 for all
	problems       string
	heap           string // directory of heap profiles; empty for none
}

// step is the cost of one step. Memory is in bytes.
type step struct {
	seconds        float64
	resident, peak int64
	reward         float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	w := work{tokens: 12}
	python, limit := "", 0
	flag.StringVar(&w.base, "base", "", "directory of the model, as Hugging Face lays it out")
	flag.IntVar(&w.steps, "steps", 5, "steps")
	flag.IntVar(&w.tasks, "tasks", 8, "tasks of a step")
	flag.IntVar(&w.samples, "samples", 8, "samples of a task")
	flag.IntVar(&w.rank, "rank", 0, "rank of LoRA; 0 trains all weights")
	flag.IntVar(&w.keep, "keep", 0, "how many of the newest versions keep their files (training.keep.last); 0 is all")
	flag.StringVar(&python, "python", "", "Python with trl, to be measured beside")
	flag.StringVar(&w.heap, "heap", "", "directory for a profile of the heap after every tenth step")
	flag.IntVar(&limit, "limit", 0, "MB of memory that this process may take; 0 is no limit")
	flag.Parse()
	if w.base == "" {
		return errors.New("-base names no model")
	}
	if w.base, err = filepath.Abs(w.base); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "grpo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w.problems = filepath.Join(dir, "problems.jsonl")
	if err := os.WriteFile(w.problems, problems(w.steps*w.tasks), 0o600); err != nil {
		return err
	}
	fmt.Println("| side | step | seconds | reward | resident MB | peak MB |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: |")
	if python != "" {
		if err := trl(ctx, w, python, dir); err != nil {
			return err
		}
	}
	if err := fulgurite(ctx, w, filepath.Join(dir, "state")); err != nil {
		return err
	}
	if _, peak := memory.Of("self"); limit > 0 && peak>>20 > int64(limit) {
		return fmt.Errorf("the process took %d MB, more than the %d of -limit", peak>>20, limit)
	}
	return nil
}

// problems returns n lines of a task file. The tasks are sums of two-digit numbers, all
// different.
func problems(n int) []byte {
	var b []byte
	for i := range n {
		x, y := 10+i*37%90, 10+i*53/90*7%90
		b = fmt.Appendf(b, "{\"id\": \"%d\", \"input\": \"What is %d + %d? Answer with the number alone.\", \"answer\": \"%d\"}\n", i, x, y, x+y)
	}
	return b
}

func (s step) print(side string, n int) {
	fmt.Printf("| %s | %d | %.1f | %.3f | %d | %d |\n", side, n, s.seconds, s.reward, s.resident>>20, s.peak>>20)
}

// since returns the seconds since t.
func since(t time.Time) float64 { return time.Since(t).Seconds() }

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

//go:embed trainer.py
var script []byte

// trl makes TRL do the steps in its own process, with its own choice of threads.
func trl(ctx context.Context, w work, python, dir string) error {
	file := filepath.Join(dir, "trainer.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, file, w.base, w.problems, dir,
		strconv.Itoa(w.steps), strconv.Itoa(w.tasks), strconv.Itoa(w.samples), strconv.Itoa(w.tokens), strconv.Itoa(w.rank))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var one struct {
			Seconds, Reward float64
			Resident, Peak  int64
		}
		if json.Unmarshal(lines.Bytes(), &one) != nil || one.Seconds == 0 {
			continue // a line that a library printed
		}
		n++
		step{seconds: one.Seconds, reward: one.Reward, resident: one.Resident, peak: one.Peak}.print(w.side("trl"), n)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("trl: %w", err)
	}
	return nil
}
