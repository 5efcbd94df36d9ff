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
