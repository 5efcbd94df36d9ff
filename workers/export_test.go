package workers

import (
	"time"

	"go.temporal.io/sdk/interceptor"
)

// PulseEvery is the pulse of Training's workers, at another pace.
func PulseEvery(d time.Duration) interceptor.WorkerInterceptor { return &pulse{every: d} }
