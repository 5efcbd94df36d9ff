package runstate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/runstate"
)

// Sixteen samples that wait for the same service are one line.
func TestSamplesThatAreBlockedByOneFailureAreOneBlockage(t *testing.T) {
	t.Parallel()
	var all []runstate.Blockage
	for attempt := 3; attempt < 8; attempt++ {
		all = runstate.Add(all, runstate.Blockage{Workflow: "demo/train-1/0", Activity: "BeginAttempt", Attempt: attempt, Failure: "no worker"})
	}
	all = runstate.Add(all, runstate.Blockage{Workflow: "demo/train-1/1", Activity: "RunAgent", Attempt: 4, Failure: "attempt demo/train-1/1/0/3: away"})
	all = runstate.Add(all, runstate.Blockage{Workflow: "demo/train-1/2", Activity: "RunAgent", Attempt: 4, Failure: "attempt demo/train-1/2/7/3: away"})
	require.Equal(t, []runstate.Blockage{
		{Workflow: "demo/train-1/0", Activity: "BeginAttempt", Attempt: 7, Failure: "no worker", Others: 4},
		{Workflow: "demo/train-1/1", Activity: "RunAgent", Attempt: 4, Failure: "attempt demo/train-1/1/0/3: away", Others: 1},
	}, all)
}
