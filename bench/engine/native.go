package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

const (
	batchRows = 16
	rowTokens = 128
	prompt    = 64
	reply     = 64
)

// open returns the engine of that name and a function that closes it. Engine torch runs
// its program on the CPU, with the Python that FULGURITE_TORCH names.
func open(name string, threads int) (model.Engine, func(), error) {
	switch name {
	case "native":
		return native.New(native.Options{Threads: threads}), func() {}, nil
	case "torch":
		e, err := torch.New(torch.Options{Device: "cpu", Threads: threads})
		if err != nil {
			return nil, nil, err
		}
		return e, e.Close, nil
	}
	return nil, nil, fmt.Errorf("-engine %s: there are native and torch", name)
}

// measure does one kind of work, in this process and those that it starts, and prints the
// figure.
func measure(ctx context.Context, engine, dir, work string, threads, rank int, precision model.Precision) error {
	e, end, err := open(engine, threads)
	if err != nil {
		return err
	}
	defer end()
	n, decode := strings.CutPrefix(work, "decode ")
	c, err := read(dir, rank, precision, work == "adapter" || decode && precision != "")
	if err != nil {
		return err
	}
	var f figure
	if decode {
		f.Tokens, f.Processor, err = decodes(ctx, e, c, n)
	} else {
		f.Tokens, f.Processor, err = trains(ctx, e, c, work)
	}
	if err != nil {
		return err
	}
	_, f.Peak = memory.Of("self")
	_, children := usedBy(isChild)
	f.Peak += children
	return json.NewEncoder(os.Stdout).Encode(f)
}

// read returns the model in a directory, or a new adapter over it. The base of an adapter
// is read one tensor at a time when an engine asks for it.
func read(dir string, rank int, precision model.Precision, adapter bool) (model.Checkpoint, error) {
	if !adapter {
		a, w, err := hf.ReadDirectory(dir)
		return model.Checkpoint{Architecture: a, Weights: w}, err
	}
	stored, err := hf.OpenDirectory(dir)
	if err != nil {
		return model.Checkpoint{}, err
	}
	l := model.LoRA{Rank: rank, Alpha: float64(2 * rank), Targets: model.LoRATargets(), BasePrecision: precision}
	base := &model.Base{Digest: "base", Architecture: stored.Architecture, Each: func(use func(model.Tensor) error) error {
		for _, layout := range stored.Layouts {
			t, err := stored.Tensor(layout.Name)
			if err == nil {
				err = use(t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
	return model.Checkpoint{
		Architecture: stored.Architecture, Adapter: &model.Adapter{LoRA: l, Base: base}, Weights: stored.Architecture.InitAdapter(l, 1),
	}, nil
}

// trains returns the tokens per second, and per second of processor time, of scores or
// updates.
func trains(ctx context.Context, e model.Engine, c model.Checkpoint, work string) (wall, processor float64, err error) {
	t, err := e.NewTrainer(c)
	if err != nil {
		return 0, 0, err
	}
	defer t.Close()
	rows := make([]model.Row, batchRows)
	for i := range rows {
		rows[i].Tokens = tokens(c.Architecture.VocabSize, i, rowTokens)
	}
	likelihood := func(_ int, _, _ []float32, gradient, _ []float32) {
		for i := range gradient {
			gradient[i] = -1.0 / (batchRows * (rowTokens - 1))
		}
	}
	one := func() (err error) {
		if work == "score" {
			_, _, err = t.Score(ctx, rows)
		} else {
			_, err = t.Update(ctx, rows, likelihood, model.AdamW{LearningRate: 1e-5, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1})
		}
		return err
	}
	return rate(batchRows*rowTokens, one, used)
}

// decodes returns the new tokens per second, and per second of processor time, for the
// given number of requests at once.
func decodes(ctx context.Context, e model.Engine, c model.Checkpoint, number string) (wall, processor float64, err error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, 0, err
	}
	d, err := e.NewDecoder(c)
	if err != nil {
		return 0, 0, err
	}
	defer d.Close()
	one := func() error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				_, errs[i] = d.Decode(ctx, model.DecodeRequest{
					Prompt: tokens(c.Architecture.VocabSize, i, prompt), MaxTokens: reply, Temperature: 1, Seed: uint64(i),
				})
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return fmt.Errorf("decode: %w", err)
			}
		}
		return nil
	}
	return rate(n*reply, one, used)
}

// rate calls f repeatedly and returns its tokens per second, and per second of processor
// time. The first call is not measured. used returns the processor time used so far.
func rate(tokens int, f func() error, used func() time.Duration) (wall, processor float64, err error) {
	if err := f(); err != nil {
		return 0, 0, err
	}
	times, began, before := 0, time.Now(), used()
	for times == 0 || time.Since(began) < 5*time.Second {
		if err := f(); err != nil {
			return 0, 0, err
		}
		times++
	}
	all := float64(tokens * times)
	wall = all / time.Since(began).Seconds()
	if took := used() - before; took > 0 {
		processor = all / took.Seconds()
	}
	return wall, processor, nil
}

// used returns the processor time of this process and of an engine's program.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no way to go wrong
	children, _ := usedBy(isChild)
	return time.Duration(u.Utime.Nano()+u.Stime.Nano()) + children
}

func isChild(parent, _ string) bool { return parent == strconv.Itoa(os.Getpid()) }

// tokens returns n tokens of the vocabulary, different ones for each i.
func tokens(vocabulary, i, n int) []int32 {
	out := make([]int32, n)
	for j := range out {
		out[j] = int32((i*7919 + j*104729) % vocabulary)
	}
	return out
}
