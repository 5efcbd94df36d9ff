package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/model/native"
)

const (
	batchRows = 16
	rowTokens = 128
	prompt    = 64
	reply     = 64
)

// measure does one kind of work in this process and prints its figure.
func measure(ctx context.Context, dir, work string, threads, rank int, precision model.Precision) error {
	e := native.New(native.Options{Threads: threads})
	n, decode := strings.CutPrefix(work, "decode ")
	c, err := read(dir, rank, precision, work == "adapter" || decode && precision != "")
	if err != nil {
		return err
	}
	var f figure
	if decode {
		f.Tokens, err = decodes(ctx, e, c, n)
	} else {
		f.Tokens, err = trains(ctx, e, c, work)
	}
	if err != nil {
		return err
	}
	_, f.Peak = memory.Of("self")
	return json.NewEncoder(os.Stdout).Encode(f)
}

// read is the model of a directory, or a new adapter over it, whose base is read a tensor
// at a time when an engine asks for it.
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

// trains are the tokens a second of scores or updates.
func trains(ctx context.Context, e *native.Engine, c model.Checkpoint, work string) (float64, error) {
	t, err := e.NewTrainer(c)
	if err != nil {
		return 0, err
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
	return rate(batchRows*rowTokens, one)
}

// decodes are the new tokens a second of so many requests at once.
func decodes(ctx context.Context, e *native.Engine, c model.Checkpoint, number string) (float64, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, err
	}
	d, err := e.NewDecoder(c)
	if err != nil {
		return 0, err
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
	return rate(n*reply, one)
}

// rate is how many tokens a second f takes, after a first time that does not count.
func rate(tokens int, f func() error) (float64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	times, began := 0, time.Now()
	for times < 2 || time.Since(began) < 5*time.Second {
		if err := f(); err != nil {
			return 0, err
		}
		times++
	}
	return float64(tokens*times) / time.Since(began).Seconds(), nil
}

// tokens are n of a vocabulary, others for each i.
func tokens(vocabulary, i, n int) []int32 {
	out := make([]int32, n)
	for j := range out {
		out[j] = int32((i*7919 + j*104729) % vocabulary)
	}
	return out
}
