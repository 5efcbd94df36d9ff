package workers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/internal/logging"
	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// cli is the command line.
type cli struct {
	CPU     cpuCommand     `cmd:"" name:"cpu" help:"Run workflows, coordination, agents and graders."`
	GPU     gpuCommand     `cmd:"" name:"gpu" help:"Update policies, one update at a time."`
	Sampler samplerCommand `cmd:"" help:"Sample from versions, for gateways."`
	Gateway gatewayCommand `cmd:"" help:"Answer the model calls of agents, and serve promoted versions at /v1."`
	Tools   toolsCommand   `cmd:"" help:"Find paragraphs of a corpus for agents, over HTTP and MCP."`
	Page    pageCommand    `cmd:"" help:"Show the runs on a page in the browser, and act on them."`
	Migrate migrateCommand `cmd:"" help:"Make the store's tables and Temporal's search attributes."`
	Mend    mendCommand    `cmd:"" help:"Let runs go on after the store or Temporal was restored from a backup. No other process may work meanwhile."`
	Health  healthCommand  `cmd:"" help:"Ask a process whether it works, as a container's health check."`
	Version versionCommand `cmd:"" help:"Print what this program was built from and for."`
}

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main is the main function of a program whose cpu processes have these functions for
// agents. It executes the program's command line and ends the program.
func Main(agents agent.Registry) {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := context.WithCancelCause(context.Background())
	context.AfterFunc(signalled, func() {
		stop() // a second signal then ends the process, even if the first is not yet noticed
		end(context.Cause(signalled))
	})
	code := run(ctx, agents, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// parse reads a command line. Nothing is started by it.
func parse(args []string, stderr io.Writer) (*kong.Context, error) {
	parser, err := kong.New(&cli{},
		kong.Name(program()),
		kong.Description("The processes of a Fulgurite fleet."),
		kong.Writers(os.Stdout, stderr),
		kong.Vars{"name": defaultName()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return nil, err
	}
	return parser.Parse(args)
}

// program returns the name by which this program was called.
func program() string { return filepath.Base(os.Args[0]) }

// run executes one command line.
func run(ctx context.Context, agents agent.Registry, args []string, stderr io.Writer) int {
	parsed, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%[1]s: %[2]v\nRun `%[1]s --help` for usage.\n", program(), err)
		return exitUsage
	}
	parsed.Bind(agents)
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(stderr, (*io.Writer)(nil))
	var reported reportedError
	switch err := parsed.Run(); {
	case err == nil:
		return 0
	case errors.As(err, &reported):
		return exitFailed
	default:
		fmt.Fprintf(stderr, "%s: %v\n", program(), err)
		return exitFailed
	}
}

// reportedError is an error that was logged as the last thing that the process did.
type reportedError struct{ error }

// report logs what ended a process.
func report(log *zap.Logger, err error) error {
	if err == nil {
		log.Info("ended")
		return nil
	}
	log.Error("ended", zap.Error(err))
	return reportedError{err}
}

// common are the flags of every process.
type common struct {
	Name     string        `help:"Name of this process; another of the same name and role takes its place." default:"${name}" env:"FULGURITE_NAME"`
	LogLevel string        `help:"Least level that is logged: debug, info, warn or error." enum:"debug,info,warn,error" default:"info" env:"FULGURITE_LOG_LEVEL"`
	Wait     time.Duration `help:"How long to wait at the start for the store and Temporal." default:"60s" env:"FULGURITE_WAIT"`
	Drain    time.Duration `help:"How long a stopping process may finish what it has begun." default:"30s" env:"FULGURITE_DRAIN"`

	TLS           trust.Files `embed:"" envprefix:"FULGURITE_"`
	TLSCA         string      `help:"Certificates of authorities that other processes of the fleet may have theirs from, PEM, besides those of the system." name:"tls-ca" env:"FULGURITE_TLS_CA" placeholder:"FILE" type:"path"`
	MetricsListen string      `help:"Address to show metrics for Prometheus on, at /metrics, host:port (default: none)." env:"FULGURITE_METRICS_LISTEN" placeholder:"ADDRESS"`
}

// database holds the flags that say where the records lie. Both have an environment
// variable, where a password can't be seen.
type database struct {
	Store string `help:"Store: an SQLite file or postgres://…" required:"" env:"FULGURITE_STORE" placeholder:"URL"`
	Blobs string `help:"Directory of blobs, the same for every process." required:"" env:"FULGURITE_BLOBS" placeholder:"DIR" type:"path"`
}

// defaultName differs among processes: containers may have the same host and process id.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:5])
}

// process is the environment of a command, and everything that the command has started.
type process struct {
	common
	fleet.Closers
	log         *zap.Logger
	metrics     *metrics.Metrics
	certificate *trust.Certificate // nil without TLS
	peers       trust.Peers
	fail        context.CancelCauseFunc // ends the process because of an error
}

// serve runs a command's setup and keeps the process up until a signal comes or something
// fails permanently; then everything is closed.
func (c common) serve(ctx context.Context, stderr io.Writer, setUp func(context.Context, *process) error) error {
	return c.do(ctx, stderr, func(ctx context.Context, p *process) error {
		if err := setUp(ctx, p); err != nil {
			return err
		}
		p.log.Info("started")
		<-ctx.Done()
		p.log.Info("draining", zap.Duration("limit", c.Drain))
		return context.Cause(ctx)
	})
}

// do runs work and closes everything that it has started. An end by a signal is no error.
func (c common) do(ctx context.Context, stderr io.Writer, work func(context.Context, *process) error) error {
	log := newLogger(stderr, c.LogLevel).With(zap.String("name", c.Name))
	inner, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p := &process{common: c, log: log, metrics: metrics.New(build.This("").Version), fail: fail}
	err := agent.Conceal() // agents on this machine could read its keys and the store's password
	if err == nil {
		err = p.secure()
	}
	if err == nil {
		err = p.serveMetrics(inner)
	}
	if err == nil {
		err = work(inner, p)
	}
	if ctx.Err() != nil {
		err = nil
	}
	err = errors.Join(err, p.close())
	_ = log.Sync() // what repeated is told before the end; a terminal can't be synced
	return report(log, err)
}

// secure reads the certificate of the process, the authorities that it accepts, and the key of
// the fleet.
func (p *process) secure() (err error) {
	if p.certificate, err = p.TLS.Open(p.log.Named("tls")); err != nil {
		return err
	}
	if p.peers.TLS, err = trust.Authorities(p.TLSCA); err != nil {
		return err
	}
	p.peers.Key, err = trust.ReadKey(trust.FleetKey)
	return err
}

// listen listens on an address, over TLS if the process has a certificate.
func (p *process) listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := fleet.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	return fleet.Secure(l, p.certificate), nil
}

// spare is how long closing may take in addition to the time that work under way gets.
const spare = 5 * time.Second

func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.Drain+spare)
	defer cancel()
	return p.Close(ctx)
}

// open opens the records and waits until their schema exists. It refuses a store that was
// restored and not mended.
func (p *process) open(ctx context.Context, d database) (fleet.Records, error) {
	r, err := p.openAny(ctx, d)
	if err != nil {
		return r, err
	}
	return r, d.place().Error(r.CheckMended(ctx))
}

// openAny opens the records and waits until their schema exists.
func (p *process) openAny(ctx context.Context, d database) (fleet.Records, error) {
	if err := p.await(ctx, "store", func(context.Context) error { return d.exists() }); err != nil {
		return fleet.Records{}, err
	}
	r, err := p.connect(ctx, d)
	if err != nil {
		return r, err
	}
	if err := p.await(ctx, "store's tables", func(ctx context.Context) error { return d.place().Error(r.Store.Ready(ctx)) }); err != nil {
		return r, err
	}
	return r, r.CheckBlobs(ctx)
}

// place says where the commands that are shown find the records. What they find in the
// environment is left out, and so is an address with a password.
func (d database) place() (p shell.Place) {
	if d.Store != os.Getenv("FULGURITE_STORE") {
		p.Store = d.Store
		path, err := store.FilePath(d.Store)
		absolute, wrong := filepath.Abs(path)
		switch {
		case store.Redacted(d.Store) != d.Store:
			p.Store = "URL"
		case err == nil && wrong == nil && path != "":
			p.Store = absolute
		}
	}
	if usual, err := filepath.Abs(os.Getenv("FULGURITE_BLOBS")); os.Getenv("FULGURITE_BLOBS") == "" || err != nil || usual != d.Blobs {
		p.Blobs = d.Blobs
	}
	return p
}

// exists returns an error if the store is an SQLite file that does not exist. Opening it
// would make an empty one, for a relative path in each directory.
func (d database) exists() error {
	path, err := store.FilePath(d.Store)
	if err != nil || path == "" {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no store at %s: `%s` makes it", path, d.place().WorkerCommand("migrate"))
	}
	return nil
}

// connect opens the records, whether they have tables or not.
func (p *process) connect(ctx context.Context, d database) (r fleet.Records, err error) {
	p.log.Info("opening", zap.String("store", store.Redacted(d.Store)), zap.String("blobs", d.Blobs))
	err = p.await(ctx, "store", func(ctx context.Context) (err error) {
		r, err = fleet.Connect(ctx, d.Store, d.Blobs, p.log.Named("store"))
		return err
	})
	if err != nil {
		return r, err
	}
	p.OnClose(func(context.Context) error { return r.Close() })
	return r.Measured(p.metrics), nil
}

// acquireLease takes a lease and renews it until the process is closed.
func (p *process) acquireLease(ctx context.Context, r fleet.Records, role record.Role, url string, alone bool) (*fleet.HeldLease, error) {
	var l *fleet.HeldLease
	err := p.await(ctx, "lease", func(ctx context.Context) (err error) {
		l, err = fleet.AcquireLease(ctx, r.Store, record.Lease{Role: role, Name: p.Name, URL: url}, alone, fleet.TTL, p.log)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.OnClose(l.Release)
	p.Background(l.Run)
	p.metrics.Lease(string(role), l.Valid)
	return l, nil
}

// The waits between tries at the start.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 3 * time.Second
)

// await tries until try succeeds, ctx ends or --wait is over. Containers start
// in any order.
func (p *process) await(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.Wait)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, store.ErrUnusable) {
			return err // waiting does not help
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait %s for the %s: %w", p.Wait, what, err)
		case <-timer.C:
			p.log.Warn("waiting", zap.String("for", what), zap.Error(err))
		}
	}
}

func newLogger(w io.Writer, level string) *zap.Logger {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		l = zapcore.InfoLevel // excluded by the flag's enum
	}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zap.New(logging.WithoutRepeats(zapcore.NewCore(zapcore.NewJSONEncoder(config), zapcore.Lock(zapcore.AddSync(w)), l), logging.Every))
}

// versionCommand prints the program's build, as `fulgurite version` does.
type versionCommand struct {
	JSON bool `help:"Print it as JSON." name:"json"`
}

// Run prints to standard output.
func (c *versionCommand) Run() error {
	b := build.This(kernel.Best().Name())
	if !c.JSON {
		_, err := fmt.Printf("%s %s\n", program(), b)
		return err
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(b)
}
