package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// common are the flags of every process.
type common struct {
	Name     string        `help:"Name of this process; another of the same name and role takes its place." default:"${name}" env:"FULGURITE_NAME"`
	LogLevel string        `help:"Least level that is logged: debug, info, warn or error." enum:"debug,info,warn,error" default:"info" env:"FULGURITE_LOG_LEVEL"`
	Wait     time.Duration `help:"How long to wait at the start for the store and Temporal." default:"60s" env:"FULGURITE_WAIT"`
	Drain    time.Duration `help:"How long a stopping process may finish what it has begun." default:"30s" env:"FULGURITE_DRAIN"`
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
	log  *zap.Logger
	fail context.CancelCauseFunc // ends the process because of an error
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
	p := &process{common: c, log: log, fail: fail}
	err := work(inner, p)
	if ctx.Err() != nil {
		err = nil
	}
	return report(log, errors.Join(err, p.close()))
}

// spare is how long closing may take in addition to the time that work under way gets.
const spare = 5 * time.Second

func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.Drain+spare)
	defer cancel()
	return p.Close(ctx)
}

// open opens the records and waits until their schema exists.
func (p *process) open(ctx context.Context, d database) (fleet.Records, error) {
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
	if err == nil {
		p.OnClose(func(context.Context) error { return r.Close() })
	}
	return r, err
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
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(config), zapcore.Lock(zapcore.AddSync(w)), l))
}
