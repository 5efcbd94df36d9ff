package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/fulgurite/fulgurite/record"
)

// shutdownTime is how long a worker of Temporal's may take to shut down.
const shutdownTime = time.Minute

// withWorker calls train while the example's worker of Temporal's polls its queue, if it
// has one. While an agent calls the model, the worker is told to shut down, and it is started again
// once it has.
func (e example) withWorker(ctx context.Context, server, run string, train func(context.Context) error) (err error) {
	if len(e.Worker) == 0 {
		return train(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := e.startWorker(ctx, server)
	if err != nil {
		return err
	}
	trained := make(chan error, 1)
	go func() { trained <- train(ctx) }()
	if err := awaitCall(ctx, server, run, trained); err != nil {
		return errors.Join(err, w.shutDown())
	}
	if err := w.shutDown(); err != nil {
		return err
	}
	if w, err = e.startWorker(ctx, server); err != nil {
		return err
	}
	return errors.Join(<-trained, w.shutDown())
}

// temporalWorker is a worker that was started.
type temporalWorker struct {
	process *exec.Cmd
	ended   chan error
}

// startWorker starts the worker and waits until it says that it polls.
func (e example) startWorker(ctx context.Context, server string) (*temporalWorker, error) {
	w := &temporalWorker{process: exec.CommandContext(ctx, e.Worker[0], e.Worker[1:]...), ended: make(chan error, 1)}
	w.process.Dir = e.Folder
	w.process.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+server)
	w.process.Stderr = os.Stderr
	out, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.process.Start(); err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	said := bufio.NewScanner(out).Scan()
	go func() {
		_, _ = io.Copy(io.Discard, out)
		w.ended <- w.process.Wait()
	}()
	if !said {
		return nil, fmt.Errorf("the worker ended before it polled: %w", <-w.ended)
	}
	return w, nil
}

// shutDown asks the worker to end, and waits until it has.
func (w *temporalWorker) shutDown() error {
	_ = w.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("the worker: %w", err)
		}
		return nil
	case <-time.After(shutdownTime):
		return errors.Join(fmt.Errorf("the worker does not shut down within %s", shutdownTime), w.process.Process.Kill(), <-w.ended)
	}
}

// awaitCall waits until an activity of an agent runs, which is when it calls the model,
// or until the run has ended.
func awaitCall(ctx context.Context, server, run string, ended <-chan error) (err error) {
	c, err := client.Dial(client.Options{HostPort: server, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	defer c.Close()
	first := record.Address{RolloutID: record.RolloutID{Run: run, Kind: record.Train, Step: 1}, Attempt: 1}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := c.DescribeWorkflowExecution(ctx, first.String(), "")
		var absent *serviceerror.NotFound
		if err != nil && !errors.As(err, &absent) {
			return err
		}
		for _, a := range d.GetPendingActivities() {
			if a.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
				return nil
			}
		}
		select {
		case err := <-ended:
			return errors.Join(errors.New("the run ended before an agent ran"), err)
		case <-tick.C:
		}
	}
}
