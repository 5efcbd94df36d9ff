package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Role is the name of a process.
type Role string

// The processes of a fleet. There may be more CPU workers than these two.
const (
	Postgres Role = "postgres" // absent with SQLite
	Temporal Role = "temporal" // and its Web UI
	Gateway  Role = "gateway"
	Gateway2 Role = "gateway-2" // only with Options.Serve
	Sampler  Role = "sampler"
	CPU1     Role = "cpu-1"
	CPU2     Role = "cpu-2"
	GPU      Role = "gpu"
	Page     Role = "page"   // only with Options.Page
	Pruner   Role = "pruner" // only with Options.Pruner
)

// Options say what to start.
type Options struct {
	// Dir holds everything; it is made if it is absent. A fleet started on the
	// directory of an earlier one goes on with its state.
	Dir string
	// Bin is the directory of fulgurite and fulgurite-worker.
	Bin string
	// SQLite keeps store and Temporal in files instead of PostgreSQL.
	SQLite bool
	// CPUs is how many CPU workers there are; 0 means 2.
	CPUs int
	// Serve is the key of operators who ask versions. If it is given, there are two gateways,
	// and their addresses stay the same.
	Serve string
	// Page starts the page, whose address stays the same.
	Page bool
	// Pruner is the command, program and arguments, of a process that prunes runs and ends. It
	// gets the environment of workers, and is started like any other.
	Pruner []string
	// NoReplay switches the journal off in the gateway.
	NoReplay bool
	// Arguments are added to the command of a role.
	Arguments map[Role][]string
	// Environment is added to that of every process, NAME=VALUE.
	Environment []string
	// Password is in the store's URL that processes get. The server accepts any.
	Password string
	// Work is the working directory of the processes, to which relative paths in
	// a spec refer; empty is that of this process.
	Work string
}

// Fleet is a running fleet. Its methods may be called from any goroutine, those
// for one role from one at a time.
type Fleet struct {
	// Store is the URL of the store.
	Store string
	// Blobs is the directory of blobs.
	Blobs string
	// Temporal is host:port of the frontend, and UI the URL of the Web UI.
	Temporal, UI string
	// Generations is the sampler's own log: a line of JSON for each generation.
	Generations string
	// Gateways are the URLs of the gateways with Options.Serve.
	Gateways []string
	// Page is the URL of the page with Options.Page.
	Page string

	options   Options
	order     []Role // in which they are started
	processes map[Role]*process
}

// startTimeout is how long one process may take to come up on a busy machine.
const startTimeout = time.Minute

// Start starts all processes, migrates, and returns when all are up.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	if o.CPUs == 0 {
		o.CPUs = 2
	}
	f := &Fleet{options: o, processes: map[Role]*process{}}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start fleet: %w", err), f.Close())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) (err error) {
	if f.options.Dir, err = filepath.Abs(f.options.Dir); err != nil {
		return err
	}
	if f.options.Bin, err = filepath.Abs(f.options.Bin); err != nil {
		return err
	}
	f.Blobs, f.Generations = f.path("blobs"), f.path("generations.jsonl")
	if err := os.MkdirAll(f.path("logs"), 0o755); err != nil {
		return err
	}
	database := ""
	f.Store = f.path("fulgurite.db")
	if !f.options.SQLite {
		server, err := f.startPostgres(ctx)
		if err != nil {
			return err
		}
		f.Store, database = server+"/fulgurite", server+"/temporal"
	}
	if err := f.startTemporal(ctx, database); err != nil {
		return err
	}
	if err := f.migrate(ctx); err != nil {
		return err
	}
	return f.startWorkers(ctx)
}

func (f *Fleet) startTemporal(ctx context.Context, database string) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	f.Temporal, f.UI = net.JoinHostPort("127.0.0.1", ports[0]), "http://"+net.JoinHostPort("127.0.0.1", ports[1])
	arguments := []string{"temporal", "--dir", f.path("state"), "--port", ports[0], "--ui-port", ports[1]}
	if database != "" {
		arguments = append(arguments, "--database", database)
	}
	f.add(Temporal, &process{program: f.bin("fulgurite"), arguments: arguments, up: logged("Web UI")})
	return f.startAndAwait(ctx, Temporal)
}

func (f *Fleet) startWorkers(ctx context.Context) error {
	noReplay := []string{"gateway"}
	if f.options.NoReplay {
		noReplay = append(noReplay, "--no-replay")
	}
	commands := map[Role][]string{
		Sampler:  {"sampler", "--generation-log", f.Generations},
		Gateway:  noReplay,
		Gateway2: slices.Clone(noReplay),
		GPU:      {"gpu"},
	}
	roles := []Role{Sampler, Gateway, GPU}
	ports, err := freePorts(3) // at once, so that no two are the same
	if err != nil {
		return err
	}
	if f.options.Serve != "" {
		roles = []Role{Sampler, Gateway, Gateway2, GPU}
		for i, role := range []Role{Gateway, Gateway2} {
			address := net.JoinHostPort("127.0.0.1", ports[i])
			commands[role] = append(commands[role], "--listen", address)
			f.Gateways = append(f.Gateways, "http://"+address)
		}
	}
	for i := range f.options.CPUs {
		role := Role("cpu-" + strconv.Itoa(i+1))
		commands[role] = []string{"cpu"}
		roles = append(roles, role)
	}
	if f.options.Page {
		address := net.JoinHostPort("127.0.0.1", ports[2])
		f.Page = "http://" + address
		commands[Page] = []string{"page", "--listen", address}
		roles = append(roles, Page)
	}
	for _, role := range roles {
		f.add(role, &process{
			program: f.bin("fulgurite-worker"), arguments: append(commands[role], "--name", string(role)), environment: f.workerEnvironment(), up: logged(`"msg":"started"`),
		})
		if err := f.processes[role].launch(); err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
	}
	for _, role := range roles {
		if err := f.Await(ctx, role); err != nil {
			return err
		}
	}
	if command := f.options.Pruner; len(command) > 0 {
		f.add(Pruner, &process{program: command[0], arguments: command[1:], environment: f.workerEnvironment(), up: func(context.Context, *process) error { return nil }})
		return f.startAndAwait(ctx, Pruner)
	}
	return nil
}

// migrate runs the command to its end.
func (f *Fleet) migrate(ctx context.Context) error {
	p := &process{program: f.bin("fulgurite-worker"), arguments: []string{"migrate"}, environment: f.workerEnvironment()}
	f.prepare("migrate", p)
	if err := p.launch(); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	select {
	case <-p.last().done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
	if code := p.last().code(); code != 0 {
		return fmt.Errorf("migrate: exit code %d, see %s", code, p.log)
	}
	return nil
}

func (f *Fleet) workerEnvironment() []string {
	address := f.Store
	if f.options.Password != "" {
		address = strings.Replace(address, "postgres@", "postgres:"+f.options.Password+"@", 1)
	}
	out := []string{
		"FULGURITE_STORE=" + address, "FULGURITE_BLOBS=" + f.Blobs, "TEMPORAL_ADDRESS=" + f.Temporal, "FULGURITE_LOG_LEVEL=info",
	}
	if f.options.Serve != "" {
		out = append(out, "FULGURITE_SERVING_KEY="+f.options.Serve)
	}
	return out
}

// add registers a role, with the arguments that the options add.
func (f *Fleet) add(role Role, p *process) {
	p.arguments = append(p.arguments, f.options.Arguments[role]...)
	f.prepare(string(role), p)
	f.processes[role] = p
	f.order = append(f.order, role)
}

func (f *Fleet) prepare(name string, p *process) {
	p.log = f.path("logs", name+".log")
	p.directory = f.options.Work
	p.drain = syscall.SIGTERM
	p.environment = slices.Concat(os.Environ(), p.environment, f.options.Environment)
}

// startAndAwait starts a process and waits until it is up.
func (f *Fleet) startAndAwait(ctx context.Context, role Role) error {
	if err := f.processes[role].launch(); err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	return f.Await(ctx, role)
}

func (f *Fleet) path(parts ...string) string {
	return filepath.Join(append([]string{f.options.Dir}, parts...)...)
}

func (f *Fleet) bin(name string) string { return filepath.Join(f.options.Bin, name) }

// freePorts returns ports on which nothing listens. They are below the ephemeral ports,
// so that no connection takes a port while its process is down, and differ from those of
// a suite that was started at the same time.
func freePorts(n int) ([]string, error) {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	var ports []string
	for port := 10000 + os.Getpid()%400*50; len(ports) < n && port < 32768; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		open = append(open, l)
		ports = append(ports, strconv.Itoa(port))
	}
	if len(ports) < n {
		return nil, errors.New("find free ports: there are none")
	}
	return ports, nil
}

// reachable returns nil if PostgreSQL answers.
func reachable(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
