package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
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
