package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// stopTime is how long `fulgurite dev` may take to stop.
const stopTime = 30 * time.Second

// trainer trains examples with the `fulgurite` command. All of them share one `fulgurite
// dev`. A trainer with only its command set is ready to use.
type trainer struct {
	command string
	agents  int    // maximum number of agents at once
	try     string // follows the names of runs in a second try

	mu     sync.Mutex // held while dev comes up
	dir    string     // of all state
	dev    *exec.Cmd
	server string        // Temporal's address
	output *bytes.Buffer // of dev, complete once it has ended
	ended  chan error
}

// trainable trains an example with t where that is possible.
func (e example) trainable(ctx context.Context, t *trainer) result {
	if len(e.Needs) > 0 {
		if out, err := exec.CommandContext(ctx, e.Needs[0], e.Needs[1:]...).CombinedOutput(); err != nil {
			return result{remarks: []string{fmt.Sprintf("%s: not trained: `%s`: %v: %s", e.Name, strings.Join(e.Needs, " "), err, tail(string(out)))}}
		}
	}
	return t.train(ctx, e)
}

// train makes the run of an example's spec and looks at what it left on record.
func (t *trainer) train(ctx context.Context, e example) (r result) {
	if r.err = t.start(ctx); r.err != nil {
		return r
	}
	tools, err := e.Server.start(ctx, e.Folder)
	if err != nil {
		r.err = err
		return r
	}
	defer tools.kill()
	file, err := tools.specFor(e, t.dir)
	if err != nil {
		r.err = err
		return r
	}
	records, err := fleet.Open(ctx, filepath.Join(t.dir, "fulgurite.db"), filepath.Join(t.dir, "blobs"), zap.NewNop())
	if err != nil {
		r.err = err
		return r
	}
	defer func() { r.err = errors.Join(r.err, records.Close()) }()
	began := time.Now()
	run := e.Name + t.try
	r.err = e.withWorker(ctx, t.server, run, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, t.command, "train", file, "--dir", t.dir, "--name", run, "--json")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("train: %w\n%s", err, output)
		}
		return nil
	})
	if r.err != nil {
		return r
	}
	took := time.Since(began)
	l := trainingCheck{records: records, run: run, interrupted: len(e.Worker) > 0}
	if r.err = l.read(ctx); r.err != nil {
		return r
	}
	r.calls, r.trained, r.err = l.calls, l.trained, l.check()
	r.remarks = []string{fmt.Sprintf("%s: %d steps, %s, %.1f s", e.Name, l.steps, l.describe(), took.Seconds())}
	return r
}

// start starts `fulgurite dev`, once.
func (t *trainer) start(ctx context.Context) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dev != nil {
		return nil
	}
	if t.dir, err = os.MkdirTemp("", "fulgurite-examples-"); err != nil {
		return err
	}
	dev := exec.Command(t.command, "dev", "--dir", t.dir, "--port", "0", "--ui-port", "0", "--gateway-port", "0", "--agents", strconv.Itoa(t.agents))
	t.output = &bytes.Buffer{}
	dev.Stderr = t.output
	out, err := dev.StdoutPipe()
	if err != nil {
		return err
	}
	if err := dev.Start(); err != nil {
		return fmt.Errorf("start %s (`make build` makes it): %w", t.command, err)
	}
	t.dev, t.ended = dev, make(chan error, 1)
	up := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			switch name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " "); name {
			case "Temporal":
				t.server = strings.TrimSpace(value)
				continue
			case "Gateway":
				close(up)
			default:
				continue
			}
			break
		}
		_, _ = io.Copy(io.Discard, out)
		t.ended <- dev.Wait()
	}()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-t.ended:
		t.ended <- err
		return fmt.Errorf("`fulgurite dev` does not come up: %w\n%s", err, t.output)
	}
}

// close stops `fulgurite dev` and removes its state.
func (t *trainer) close() error {
	if t.dev == nil {
		return nil
	}
	var err error
	_ = t.dev.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err = <-t.ended:
	case <-time.After(stopTime):
		err = errors.Join(fmt.Errorf("`fulgurite dev` does not stop within %s", stopTime), t.dev.Process.Kill(), <-t.ended)
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// trainingCheck is the part of a finished run's record that shows whether the run
// learned from what the agent did.
type trainingCheck struct {
	records fleet.Records
	run     string
	// interrupted says that the agents' worker was shut down while an agent ran.
	interrupted bool

	steps   int
	calls   int
	trained int      // tokens
	again   int      // attempts that count and are not the first of their rollout
	failed  []string // attempts that count and whose agent failed, and how
	silent  []string // attempts without a call
	// better and worse are the mean changes of the log-probability of trained tokens of
	// the first batch by the first update. better is over tokens with an advantage above
	// 0, worse over those with one below 0.
	better, worse float64
	// gain is the mean, over all these tokens, of that change times the advantage. An
	// update along the gradient makes it positive for any batch. better, on the other
	// hand, may be negative if most tokens of a batch have a negative advantage, because
	// all tokens share the weights.
	gain     float64
	rewarded bool // there are both
}

// leastGain is far above what rounding comes to, 1e-6 for a token, and far below what one update
// at these learning rates gains.
const leastGain = 1e-4

// read reads the run's record.
func (l *trainingCheck) read(ctx context.Context) error {
	steps, err := l.records.Store.Steps(ctx, l.run, model.DefaultPolicy)
	if err != nil {
		return err
	}
	l.steps = len(steps)
	for _, step := range steps {
		b, err := l.batch(ctx, step.Step)
		if err != nil {
			return err
		}
		l.trained += b.Denominators.Tokens
		if err := l.attempts(ctx, b); err != nil {
			return err
		}
		if step.Step == 1 {
			if err := l.rescore(ctx, b); err != nil {
				return fmt.Errorf("score the first batch of %s again: %w", l.run, err)
			}
		}
	}
	return nil
}

func (l *trainingCheck) batch(ctx context.Context, step int) (model.Batch, error) {
	row, err := l.records.Store.Batch(ctx, l.run, model.DefaultPolicy, step)
	if err != nil {
		return model.Batch{}, err
	}
	data, err := l.records.Blobs.Get(ctx, row.Digest)
	if err != nil {
		return model.Batch{}, err
	}
	return hf.DecodeBatch(data)
}

// attempts counts what the attempts of a batch did.
func (l *trainingCheck) attempts(ctx context.Context, b model.Batch) error {
	for _, t := range b.Trajectories {
		address, err := record.ParseAddress(t.Attempt)
		if err != nil {
			return err
		}
		a, err := l.records.Store.Attempt(ctx, address)
		if err != nil {
			return err
		}
		l.calls += a.Calls
		if address.Attempt > 1 {
			l.again++
		}
		if a.Calls == 0 {
			l.silent = append(l.silent, t.Attempt)
		}
		if a.Outcome == record.AgentFailed {
			l.failed = append(l.failed, fmt.Sprintf("%s: %s", t.Attempt, tail(a.Error)))
		}
	}
	return nil
}

// rescore compares versions 0 and 1 on the batch with which version 1 was made.
func (l *trainingCheck) rescore(ctx context.Context, b model.Batch) error {
	before, err := l.score(ctx, 0, b)
	if err != nil {
		return err
	}
	after, err := l.score(ctx, 1, b)
	if err != nil {
		return err
	}
	var gained [2]float64
	var tokens [2]int
	for i, row := range b.Rows {
		for t, sampled := range row.Sampled {
			if !sampled || row.Advantages[t] == 0 {
				continue
			}
			side := 0
			if row.Advantages[t] < 0 {
				side = 1
			}
			change := float64(after[i][t-1] - before[i][t-1])
			l.gain += change * float64(row.Advantages[t])
			gained[side] += change
			tokens[side]++
		}
	}
	l.gain /= float64(max(1, tokens[0]+tokens[1]))
	if l.rewarded = tokens[0] > 0 && tokens[1] > 0; l.rewarded {
		l.better, l.worse = gained[0]/float64(tokens[0]), gained[1]/float64(tokens[1])
	}
	return nil
}

// score returns the log-probability that a version gives each token of the batch, except
// the first token of a row.
func (l *trainingCheck) score(ctx context.Context, number int, b model.Batch) ([][]float32, error) {
	v, err := l.records.Store.Version(ctx, model.VersionID{Run: l.run, Policy: model.DefaultPolicy, Number: number})
	if err != nil {
		return nil, err
	}
	k, _, err := checkpoint.Load(ctx, l.records.Blobs, v.Manifest)
	if err != nil {
		return nil, err
	}
	engine, err := fleet.Engines("native")
	if err != nil {
		return nil, err
	}
	trainer, err := engine.NewTrainer(k)
	if err != nil {
		return nil, err
	}
	defer trainer.Close()
	rows := make([]model.Row, len(b.Rows))
	for i, r := range b.Rows {
		rows[i] = r.Row
	}
	logprobs, _, err := trainer.Score(ctx, rows)
	return logprobs, err
}

// check reports what keeps the run from having learned.
func (l *trainingCheck) check() error {
	var all []error
	if l.steps == 0 {
		all = append(all, errors.New("no step is on record"))
	}
	if len(l.silent) > 0 {
		all = append(all, fmt.Errorf("%d attempts made no call, such as %s", len(l.silent), l.silent[0]))
	}
	if l.interrupted && l.again == 0 {
		all = append(all, errors.New("the agents' worker was shut down while an agent ran, and no attempt was made again"))
	}
	if l.trained == 0 {
		all = append(all, errors.New("no token was trained"))
	}
	if len(l.failed) > 0 {
		all = append(all, fmt.Errorf("the agent failed in %d attempts, such as %s", len(l.failed), l.failed[0]))
	}
	if !l.rewarded {
		all = append(all, errors.New("the rewards of the first step don't differ: nothing was better or worse"))
	} else if l.gain < leastGain {
		all = append(all, fmt.Errorf("the first update changed the log-probability of rewarded tokens by %+.4f, of the others by %+.4f, weighed by their advantages by %+.5f: want at least %g", l.better, l.worse, l.gain, leastGain))
	}
	return errors.Join(all...)
}

func (l *trainingCheck) describe() string {
	return fmt.Sprintf("log-probability of a rewarded token %+.4f, of another %+.4f, weighed %+.5f", l.better, l.worse, l.gain)
}
