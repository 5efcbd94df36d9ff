package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/store/blob"
)

// The work of a trainer and of a sampler.
const (
	rowTokens               = 128
	requests, prompt, reply = 8, 64, 32
)

// measure loads the version, does the work, and reports the cost.
func (o options) measure(ctx context.Context) error {
	blobs, err := blob.Open(o.blobs)
	if err != nil {
		return err
	}
	c, _, err := checkpoint.Load(ctx, blobs, o.manifest)
	if err != nil {
		return err
	}
	if o.unmapped {
		c.Adapter.Base.Beside = nil
	}
	e := native.New(native.Options{Threads: o.threads})
	var f figure
	began := time.Now()
	work, err := o.prepare(e, c)
	if err != nil {
		return err
	}
	f.Loaded = time.Since(began).Seconds()
	_, f.PeakLoaded = memory.Of("self")
	before := used()
	if err := work(ctx); err != nil {
		return err
	}
	f.Worked = (used() - before).Seconds()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("done")
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the others: %w", err)
	}
	_, f.Peak = memory.Of("self")
	f.Own, f.Share = memory.Own("self"), memory.Share("self")
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// used returns the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no way to go wrong
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// prepare makes a trainer or a decoder, and returns a function that does the work with
// it. The trainer or decoder stays in memory until the process ends.
func (o options) prepare(e *native.Engine, c model.Checkpoint) (func(context.Context) error, error) {
	if o.work == "sampler" {
		d, err := e.NewDecoder(c)
		return func(ctx context.Context) error { return decode(ctx, d, c.Architecture) }, err
	}
	t, err := e.NewTrainer(c)
	return func(ctx context.Context) error { return o.train(ctx, t, c.Architecture) }, err
}

func (o options) train(ctx context.Context, t model.Trainer, a model.Architecture) error {
	rows := make([]model.Row, o.rows)
	for i := range rows {
		rows[i].Tokens = tokens(a, i, rowTokens)
	}
	likelihood := func(_ int, _, _ []float32, gradient, _ []float32) {
		for i := range gradient {
			gradient[i] = -1 / float32(o.rows*(rowTokens-1))
		}
	}
	for range o.updates {
		opt := model.AdamW{LearningRate: 1e-5, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1}
		if _, err := t.Update(ctx, rows, likelihood, opt); err != nil {
			return err
		}
	}
	return nil
}

func decode(ctx context.Context, d model.Decoder, a model.Architecture) error {
	var all sync.WaitGroup
	errs := make(chan error, requests)
	for i := range requests {
		all.Go(func() {
			_, err := d.Decode(ctx, model.DecodeRequest{Prompt: tokens(a, i, prompt), MaxTokens: reply, Temperature: 1, Seed: uint64(i)})
			errs <- err
		})
	}
	all.Wait()
	for range requests {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// tokens returns n tokens of the vocabulary, different ones for each i.
func tokens(a model.Architecture, i, n int) []int32 {
	out := make([]int32, n)
	for j := range out {
		out[j] = int32((i*7919 + j*104729) % a.VocabSize)
	}
	return out
}
