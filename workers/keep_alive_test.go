package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/fulgurite/fulgurite/workers"
)

func TestActivitiesThatReportNothingAreReportedAlive(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{workers.KeepAliveEvery(time.Millisecond)}})
	beat := make(chan struct{}, 1000)
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { beat <- struct{}{} })
	silent := func(context.Context) (string, error) {
		<-beat
		return "done", nil
	}
	env.RegisterActivity(silent)
	value, err := env.ExecuteActivity(silent)
	require.NoError(t, err)
	var out string
	require.NoError(t, value.Get(&out))
	require.Equal(t, "done", out)
}
