// Package stack runs all of Fulgurite in one process: embedded Temporal with its Web UI,
// the store, the sampler, the gateway, the forwarder and the workers of all three queues.
// The demo, `fulgurite dev` and end-to-end tests run on it.
//
// Everything durable lies in one directory, laid out by [Layout]. If a stack was killed,
// a new one that is started on the same directory goes on where the old one was. Only one
// stack may run on a directory at a time. A stack is no cluster: for a cluster, run the
// same parts (package fleet) as separate processes, with fulgurite-worker.
package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/capacity"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/archive"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Layout is a stack's directory. Its methods say where things lie in it.
type Layout string

// Database returns the path of the store's file.
func (l Layout) Database() string { return filepath.Join(string(l), "fulgurite.db") }

// Blobs returns the directory of tasks, batches and versions.
func (l Layout) Blobs() string { return filepath.Join(string(l), "blobs") }

// Temporal returns the directory of the server's database.
func (l Layout) Temporal() string { return filepath.Join(string(l), "temporal") }

// Holder returns the process id of the stack that runs on the directory, "" if none does.
func (l Layout) Holder() (string, error) { return devserver.Holder(l.Temporal()) }

// Run returns the directory of the files of one run that are for people to read.
func (l Layout) Run(name string) string { return filepath.Join(string(l), "runs", name) }

// Options say what to start. If a port is taken, another free one is used instead; 0 asks
// for no port in particular.
type Options struct {
	Dir string
	// Store is the URL of a PostgreSQL that has the store; empty means the directory's own
	// file. Blobs and Temporal's database are in the directory in both cases.
	Store       string
	UI          bool
	Frontend    int // Temporal's port
	UIPort      int
	GatewayPort int
	// MetricsPort is where metrics are shown; if it is nil, they are not.
	MetricsPort *int
	// TracePort is where spans come in by gRPC; if it is 0, they come only by HTTP.
	TracePort int
	// Queues are polled for agents in addition to workflows.QueueRollout.
	Queues []string
	// Scratch is the directory below which rollouts have their homes. By default all
	// stacks of the user share one directory, in which rollouts of equal names wait for
	// each other.
	Scratch string
	// Agents are the functions that a spec may name.
	Agents agent.Registry
	// Concurrency is the most agents that run at once; 0 means as many as
	// package capacity says.
	Concurrency int
	Log         *zap.Logger
	// HistoryEvents is the length of a history from which on Temporal suggests to
	// continue as new; 0 leaves the choice to Temporal.
	HistoryEvents int
	// Reconcile is how often the record of runs is compared with Temporal; 0 is the
	// default of package runstate.
	Reconcile time.Duration
	// Archive is how long ago a run has to have ended for its histories to be archived; 0 is the
	// default of package archive.
	Archive time.Duration
	// ServerLog receives the log of the embedded Temporal server; nil drops it. The
	// server logs its own retries as errors, which are of no use to people who run
	// agents.
	ServerLog *zap.Logger
}

// resident is how many versions the sampler keeps: the newest, the promoted one and two
// that rollouts in flight may ask for.
const resident = 4

// Stack is a running stack.
type Stack struct {
	fleet.Records
	Layout Layout
	Client client.Client
	// Notices say what Start found and mended, for people.
	Notices []string

	log        *zap.Logger
	temporal   *devserver.Server
	metrics    *metrics.Metrics
	gatewayURL string
	metricsURL string
	// traceAddress is the address at which spans come in by gRPC, or empty.
	traceAddress string
	sampler      *fleet.Router
	closers      fleet.Closers
}

// Start starts everything. If a part fails, it stops the parts that it has started.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	s := &Stack{Layout: Layout(o.Dir), log: o.Log, metrics: metrics.New(build.This("").Version)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	if err := s.startTemporal(ctx, o); err != nil {
		return nil, err
	}
	if err := s.openStore(ctx, o.Store); err != nil {
		return nil, err
	}
	if err := s.mend(ctx); err != nil {
		return nil, err
	}
	s.sampler = s.RouteLocally(resident)
	s.closers.OnClose(func(context.Context) error { s.sampler.Close(); return nil })
	s.closers.Background(func(ctx context.Context) {
		if err := s.sampler.Preload(ctx); err != nil {
			s.log.Debug("the first calls will load the weights", zap.Error(err))
		}
	})
	if err := s.startGateway(ctx, o); err != nil {
		return nil, err
	}
	if err := s.showMetrics(ctx, o); err != nil {
		return nil, err
	}
	return s, s.startWorkers(ctx, o)
}

func (s *Stack) startTemporal(ctx context.Context, o Options) error {
	server, err := devserver.Start(ctx, devserver.Options{
		Dir: s.Layout.Temporal(), UI: o.UI, FrontendPort: o.Frontend, UIPort: o.UIPort,
		SearchAttributes: workflows.SearchAttributes(), HistoryEvents: o.HistoryEvents, Log: o.ServerLog,
	})
	if err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	s.temporal = server
	s.closers.OnClose(func(context.Context) error { return server.Stop() })
	identity := workerIdentity()
	s.recover(ctx, identity)
	handler, err := fleet.TemporalMetrics(s.metrics)
	if err != nil {
		return err
	}
	s.Client, err = client.DialContext(ctx, client.Options{
		HostPort: server.Address(), Namespace: server.Namespace(), Identity: identity, MetricsHandler: handler,
		Logger: sdklog.NewStructuredLogger(slog.New(zapslog.NewHandler(o.Log.Named("worker").Core(), withoutTraces))),
	})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	s.closers.OnClose(func(context.Context) error { s.Client.Close(); return nil })
	return nil
}

func (s *Stack) openStore(ctx context.Context, url string) (err error) {
	if url == "" {
		url = s.Layout.Database()
		if err := store.CheckFile(ctx, url); err != nil {
			return err
		}
	}
	if s.Records, err = fleet.Connect(ctx, url, s.Layout.Blobs(), s.log); err != nil {
		return err
	}
	s.closers.OnClose(func(context.Context) error { return s.Records.Close() })
	s.Records = s.Measured(s.metrics)
	return s.Migrate(ctx, true)
}

func (s *Stack) startGateway(ctx context.Context, o Options) error {
	listener, err := listen(ctx, o.GatewayPort)
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	log := o.Log.Named("gateway")
	door := s.Gateway(gateway.Config{Sampler: s.sampler, Log: log})
	server := fleet.Serve(listener, door, log)
	s.gatewayURL = server.URL()
	s.closers.OnClose(server.Close)
	s.closers.Background((&retention.Expirer{Store: s.Store, Log: log}).Run)
	if o.TracePort == 0 {
		return nil
	}
	if listener, err = listen(ctx, o.TracePort); err != nil {
		return fmt.Errorf("start the trace server: %w", err)
	}
	traces := fleet.ServeTraces(listener, door, log)
	s.traceAddress = traces.Address()
	s.closers.OnClose(traces.Close)
	return nil
}

func (s *Stack) showMetrics(ctx context.Context, o Options) error {
	if o.MetricsPort == nil {
		return nil
	}
	listener, err := listen(ctx, *o.MetricsPort)
	if err != nil {
		return fmt.Errorf("show metrics: %w", err)
	}
	server := fleet.Serve(listener, fleet.MetricsHandler(s.metrics), o.Log.Named("metrics"))
	s.metricsURL = server.URL() + fleet.MetricsPath
	s.closers.OnClose(server.Close)
	return nil
}

func (s *Stack) startWorkers(ctx context.Context, o Options) error {
	forwarder, err := forwarder.New(ctx, func() string { return s.gatewayURL }, o.Log.Named("forwarder"))
	if err != nil {
		return err
	}
	s.closers.OnClose(forwarder.Close)
	trainer := s.Trainer(fleet.Engines)
	trainer.Sleeper = s.sampler
	s.closers.OnClose(func(context.Context) error { trainer.Close(); return nil })
	coordinator, err := s.Coordinator(s.Client, s.temporal.Namespace(), s.sampler)
	if err != nil {
		return err
	}
	tuning := workers.Tuning{Concurrent: o.Concurrency}
	if tuning.Concurrent == 0 {
		most, why := capacity.Agents()
		if tuning.Concurrent = most; why != "" {
			s.Notices = append(s.Notices, fmt.Sprintf("%d agents run at once, fewer than 32 a core, because the system limits %s; --agents sets another number", most, why))
		}
	}
	list := []worker.Worker{workers.Training(s.Client, coordinator, tuning), workers.TrainGPU(s.Client, trainer, tuning)}
	runner := s.Runner(forwarder, o.Agents)
	launchers := s.Launchers(o.Agents)
	directory, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("find the state directory: %w", err)
	}
	launchers.Scratch, launchers.Hidden = o.Scratch, append(launchers.Hidden, directory)
	launchers.Containers = &fleet.Containers{Log: o.Log.Named("containers")}
	runner.Workers, runner.Launchers = fleet.Workers{Client: s.Client}, launchers
	s.closers.OnClose(func(context.Context) error { runner.Close(); return nil })
	for _, queue := range append([]string{workflows.QueueRollout}, o.Queues...) {
		list = append(list, workers.Rollout(s.Client, queue, runner, tuning))
	}
	for _, w := range list {
		if err := w.Start(); err != nil {
			return fmt.Errorf("start a worker: %w", err)
		}
		s.closers.OnClose(func(context.Context) error { w.Stop(); return nil })
	}
	s.startReconciler(o)
	s.startArchiver(o)
	return nil
}

// startReconciler corrects the record of runs by what Temporal did to them.
func (s *Stack) startReconciler(o Options) {
	r := runstate.Reconciler{Client: s.Client, Namespace: s.temporal.Namespace(), Store: s.Store, Log: o.Log.Named("runs"), Every: o.Reconcile}
	s.closers.Background(r.Run)
}

// startArchiver keeps the histories of runs for when Temporal has deleted them.
func (s *Stack) startArchiver(o Options) {
	temporal := archive.Temporal{Client: s.Client, Namespace: s.temporal.Namespace()}
	s.closers.Background((&archive.Archiver{Temporal: temporal, Store: s.Store, Blobs: s.Blobs, Log: o.Log.Named("archive"), Settled: o.Archive}).Run)
}

// GatewayURL returns the URL of the OpenAI-compatible gateway, ending in "/v1".
func (s *Stack) GatewayURL() string { return s.gatewayURL + "/v1" }

// MetricsURL returns where the metrics are shown, or "" if they are not.
func (s *Stack) MetricsURL() string { return s.metricsURL }

// Loaded returns the versions that the sampler has in memory, the last used first.
func (s *Stack) Loaded() []model.VersionID { return s.sampler.Loaded() }

// TraceAddress returns host:port of the trace server, or "" if there is none.
func (s *Stack) TraceAddress() string { return s.traceAddress }

// TemporalAddress returns host:port of Temporal's frontend.
func (s *Stack) TemporalAddress() string { return s.temporal.Address() }

// UIURL returns the Web UI's address, or "" if there is none.
func (s *Stack) UIURL() string { return s.temporal.UIURL() }

// Namespace returns the namespace of Temporal that runs are in.
func (s *Stack) Namespace() string { return s.temporal.Namespace() }

// WorkflowURL returns the address of a workflow's page in the Web UI.
func (s *Stack) WorkflowURL(id string) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", s.temporal.UIURL(), s.temporal.Namespace(), id)
}

// CheckDirectory returns nil while the directory is the one that the stack was started
// on, and devserver.ErrLost once it was removed or replaced. Call it only before Close.
func (s *Stack) CheckDirectory() error { return s.temporal.CheckDirectory() }

// closeTimeout bounds what Close waits for.
const closeTimeout = 20 * time.Second

// Close stops everything, workers first. Runs under way go on when a stack is
// started on the directory again.
func (s *Stack) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.closers.Close(ctx)
}

// withoutTraces keeps stack traces of the SDK out of the log. The SDK logs one when an
// activity is tried again, although it is not at fault and the trace says nothing about
// the reason.
var withoutTraces = zapslog.AddStacktraceAt(math.MaxInt)

// listen listens on the port, or on a free one if it is taken.
func listen(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && port != 0 {
		return lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return l, err
}

// workerPrefix begins the identity of every stack's workers, and of no others. A
// directory has one stack at a time. So a worker with the prefix and another identity
// belongs to a stack that has ended.
const workerPrefix = "fulgurite-stack/"

// workerIdentity returns the identity of this process's workers. The process id alone
// would not be enough: in a container it is the same at every start.
func workerIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s%s %d@%s", workerPrefix, rand.Text(), os.Getpid(), host)
}

// recover begins again what the workers of the stack before this one had begun.
// Temporal would find out by its timeouts, ten seconds and more after they died.
func (s *Stack) recover(ctx context.Context, own string) {
	done, err := s.temporal.Recover(ctx, func(identity string) bool {
		return identity != own && strings.HasPrefix(identity, workerPrefix)
	})
	if err != nil {
		// Timeouts find what is left.
		s.log.Warn("some work of the last stack does not begin again at once", zap.Error(err))
	}
	if done.Workflows > 0 {
		s.log.Info("open workflows go on", zap.Int("workflows", done.Workflows), zap.Int("activities", done.Activities),
			zap.Int("delayed_activities", done.Delayed), zap.Int("untied", done.Untied))
	}
}
