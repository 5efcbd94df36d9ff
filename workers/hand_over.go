package workers

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
)

// handOverTime is how long a drained worker has to report what it hands over: agents have
// to end before.
const handOverTime = 2 * time.Second

// typeDrained is the type of the error of an activity that a drained worker hands over.
const typeDrained = "Drained"

// errDrained ends what a worker has not finished when it is drained.
var errDrained = errors.New("the worker is being drained: another one goes on")

// handOver ends the activities that a stopping worker has not finished in time, and reports
// them as failed, so that another worker is asked at once. Without a report the server would
// miss their heartbeats first, which takes ten seconds.
type handOver struct {
	interceptor.WorkerInterceptorBase
	after time.Duration // since the worker stops
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (h *handOver) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &handedOver{interceptor.ActivityInboundInterceptorBase{Next: next}, h.after}
}

type handedOver struct {
	interceptor.ActivityInboundInterceptorBase
	after time.Duration
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *handedOver) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	stopping := activity.GetWorkerStopChannel(ctx)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ended:
			return
		case <-stopping:
		}
		timer := time.NewTimer(i.after)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			cancel(errDrained)
		}
	})
	defer watching.Wait()
	defer close(ended)
	out, err := i.Next.ExecuteActivity(inner, in)
	if err != nil && errors.Is(context.Cause(inner), errDrained) {
		return nil, sdk.NewApplicationError(errDrained.Error(), typeDrained)
	}
	return out, err
}
