package devserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	queue  = "test"
	signal = "add"
	query  = "collected"
)

// AwaitSignal returns the text of the signal that it waits for.
func AwaitSignal(ctx workflow.Context) (string, error) {
	var text string
	workflow.GetSignalChannel(ctx, signal).Receive(ctx, &text)
	return text, nil
}

// CollectSignals returns the texts of the first two signals.
func CollectSignals(ctx workflow.Context) ([]string, error) {
	var texts []string
	if err := workflow.SetQueryHandler(ctx, query, func() ([]string, error) { return texts, nil }); err != nil {
		return nil, err
	}
	for len(texts) < 2 {
		var text string
		workflow.GetSignalChannel(ctx, signal).Receive(ctx, &text)
		texts = append(texts, text)
	}
	return texts, nil
}

func newWorker(c client.Client) worker.Worker {
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(AwaitSignal)
	w.RegisterWorkflow(CollectSignals)
	return w
}

// work runs a worker until the end of the test.
func work(t *testing.T, c client.Client) {
	t.Helper()
	w := newWorker(c)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}
