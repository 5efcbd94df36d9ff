package workers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/fulgurite/fulgurite/activities"
	probe "github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Tuning sets up the workers of a process. The zero value is right for a process that
// is ended together with everything else.
type Tuning struct {
	// Concurrent is the most agents that run at once; 0 is Temporal's default.
	Concurrent int
	// Drain is how long a stopping worker lets activities finish. After that it hands them
	// over to other workers. 0 is 5 seconds, and hands over nothing, because there is no
	// other worker.
	Drain time.Duration
	// Fatal is called with the error that ended a worker permanently, such as a namespace
	// that does not exist any more.
	Fatal func(error)
}

// options returns the options of every worker.
func (t Tuning) options() worker.Options {
	if t.Drain == 0 {
		return worker.Options{WorkerStopTimeout: 5 * time.Second, OnFatalError: t.Fatal}
	}
	return worker.Options{
		WorkerStopTimeout: t.Drain + handOverTime, OnFatalError: t.Fatal,
		Interceptors: []interceptor.WorkerInterceptor{&handOver{after: t.Drain}},
	}
}

// Registry registers workflows; workers and replayers implement it.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Workflows registers the workflows under their public names.
func Workflows(r Registry) {
	for name, f := range map[string]any{
		"TrainingWorkflow":   workflows.TrainingWorkflow,
		"RolloutWorkflow":    workflows.RolloutWorkflow,
		"EvaluationWorkflow": workflows.EvaluationWorkflow,
		"TryWorkflow":        workflows.TryWorkflow,
		"PromptWorkflow":     workflows.PromptWorkflow,
		"CandidateWorkflow":  workflows.CandidateWorkflow,
		"PhasesWorkflow":     workflows.PhasesWorkflow,
		"TrafficWorkflow":    workflows.TrafficWorkflow,
		"PruneWorkflow":      workflows.PruneWorkflow,
	} {
		r.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
}

// Training returns a worker for the queue "training".
func Training(c client.Client, coordinator *activities.Coordinator, t Tuning) worker.Worker {
	o := t.options()
	o.Interceptors = append(o.Interceptors, &keepAlive{})
	w := worker.New(c, workflows.QueueTraining, o)
	Workflows(w)
	w.RegisterActivity(coordinator)
	return w
}

// Rollout returns a worker for queue (workflows.QueueRollout unless a spec names another)
// that runs at most t.Concurrent agents at once.
func Rollout(c client.Client, queue string, runner *activities.Runner, t Tuning) worker.Worker {
	o := t.options()
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityExecutionSize = t.Concurrent
	w := worker.New(c, queue, o)
	w.RegisterActivityWithOptions(runner, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is no activity
	return w
}

// TrainGPU returns a worker for the queue "train-gpu". It runs one activity at a time,
// since a card holds one update, and no eager activities, which would exceed that limit.
func TrainGPU(c client.Client, trainer *activities.Trainer, t Tuning) worker.Worker {
	o := t.options()
	o.DisableWorkflowWorker = true
	o.DisableEagerActivities = true
	o.MaxConcurrentActivityExecutionSize = 1
	w := worker.New(c, workflows.QueueTrainGPU, o)
	w.RegisterActivityWithOptions(trainer, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is no activity
	return w
}

// temporal has the flags for the connection to Temporal. Other settings, such as TLS and
// keys, come from Temporal's own variables (TEMPORAL_TLS, TEMPORAL_API_KEY,
// TEMPORAL_PROFILE, …), as for the temporal CLI.
type temporal struct {
	TemporalAddress string `help:"Temporal's frontend, host:port (default: localhost:7233)." env:"TEMPORAL_ADDRESS" placeholder:"ADDRESS"`
	Namespace       string `help:"Temporal's namespace (default: default)." env:"TEMPORAL_NAMESPACE" placeholder:"NAME"`
}

// dial connects to Temporal and waits until the namespace exists. It also returns the
// namespace's name.
func (p *process) dial(ctx context.Context, t temporal) (client.Client, string, error) {
	o, err := fleet.TemporalOptions()
	if err != nil {
		return nil, "", err
	}
	if t.TemporalAddress != "" {
		o.HostPort = t.TemporalAddress
	}
	if t.Namespace != "" {
		o.Namespace = t.Namespace
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	o.Identity = p.Name
	if o.MetricsHandler, err = fleet.TemporalMetrics(p.metrics); err != nil {
		return nil, "", err
	}
	o.Logger = sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(p.log.Named("temporal").Core())))
	p.log.Info("connecting", zap.String("temporal", o.HostPort), zap.String("namespace", o.Namespace))
	var c client.Client
	err = p.await(ctx, "Temporal server", func(ctx context.Context) (err error) {
		c, err = client.DialContext(ctx, o)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	p.OnClose(func(context.Context) error { c.Close(); return nil })
	return c, o.Namespace, p.await(ctx, "Temporal namespace", func(ctx context.Context) error {
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: o.Namespace})
		return err
	})
}

// tuning returns the tuning of this process's workers.
func (p *process) tuning(concurrent int) Tuning {
	return Tuning{Concurrent: concurrent, Drain: p.Drain, Fatal: p.fail}
}

// poll starts workers, which stop together.
func (p *process) poll(list ...worker.Worker) error {
	var started []worker.Worker
	p.OnClose(func(context.Context) error {
		var all sync.WaitGroup
		for _, w := range started {
			all.Go(w.Stop)
		}
		all.Wait()
		return nil
	})
	for _, w := range list {
		if err := w.Start(); err != nil {
			return fmt.Errorf("start a worker: %w", err)
		}
		started = append(started, w)
	}
	return nil
}

// health is the flag of processes that listen for nothing else.
type health struct {
	HealthListen string `help:"Address to answer /healthz on, host:port (default: none)." env:"FULGURITE_HEALTH_LISTEN" placeholder:"ADDRESS"`
}

// serveHealth answers /healthz from when the process works until it drains.
func (p *process) serveHealth(ctx context.Context, h health) error {
	if h.HealthListen == "" {
		return nil
	}
	listener, err := p.listen(ctx, h.HealthListen)
	if err != nil {
		return fmt.Errorf("--health-listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	p.OnClose(fleet.Serve(listener, mux, p.log.Named("http")).Close)
	return nil
}

// serveMetrics shows the metrics of the process until it ends.
func (p *process) serveMetrics(ctx context.Context) error {
	if p.MetricsListen == "" {
		return nil
	}
	key, err := trust.ReadKey(trust.MetricsKey)
	if err != nil {
		return err
	}
	listener, err := p.listen(ctx, p.MetricsListen)
	if err != nil {
		return fmt.Errorf("--metrics-listen: %w", err)
	}
	if key == "" && reachable(p.MetricsListen) {
		p.log.Warn("other machines can read the metrics, because no key is set", zap.String("listen", p.MetricsListen), zap.String("variable", trust.MetricsKey))
	}
	s := fleet.Serve(listener, trust.RequireKey(key, trust.MetricsKey, fleet.MetricsHandler(p.metrics)), p.log.Named("http"))
	p.OnClose(s.Close)
	p.log.Info("showing metrics", zap.String("url", s.URL()+fleet.MetricsPath))
	return nil
}

// healthCommand is for images without a shell or curl.
type healthCommand struct {
	URL     string        `help:"URL to ask." required:"" name:"url"`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
	TLSCA   string        `help:"Certificates of authorities that the process may have its own from, PEM, besides those of the system. On this machine, any certificate is accepted." name:"tls-ca" env:"FULGURITE_TLS_CA" placeholder:"FILE" type:"path"`
}

// Run fails unless the answer is 200.
func (c *healthCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	trusted, err := trust.Authorities(c.TLSCA)
	if err != nil {
		return err
	}
	if host := request.URL.Hostname(); host == "" || access.IsLoopback(host) || net.ParseIP(host).IsUnspecified() { // certificates are for the names by which others know a process
		trusted = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the request has no secret, and does not leave the machine
	}
	transport := probe.NewTransport(trusted)
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.URL, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: it answers %s", c.URL, response.Status)
	}
	return nil
}

// keepAliveEvery is how often an activity is reported to be alive: several times
// within the heartbeat timeout of those that coordinate.
const keepAliveEvery = 2 * time.Second

// keepAlive sends heartbeats for activities that are too short to report progress
// themselves. The heartbeats say only that the worker is alive: an activity that hangs is
// found by its timeout from start to close. Without them, a worker that died during a
// millisecond's work would be noticed only by that timeout, too. keepAlive is silent
// while an activity reports its own progress.
type keepAlive struct {
	interceptor.WorkerInterceptorBase
	every time.Duration // 0 is keepAliveEvery
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (k *keepAlive) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &keptAlive{interceptor.ActivityInboundInterceptorBase{Next: next}, cmp.Or(k.every, keepAliveEvery)}
}

type keptAlive struct {
	interceptor.ActivityInboundInterceptorBase
	every time.Duration
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *keptAlive) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	var p activities.KeepAlive
	ctx = activities.WithKeepAlive(ctx, &p)
	stop := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(i.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				p.Beat(ctx)
			}
		}
	})
	defer beats.Wait()
	defer close(stop)
	return i.Next.ExecuteActivity(ctx, in)
}

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
