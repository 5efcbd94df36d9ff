// Package pageserver serves the page of a store for a command: it listens at the address
// that the flags give, admits those whom the flags admit, and connects the page to
// Temporal and to the code that acts on runs.
//
// The page itself is package page. This package decides nothing about runs. It refuses
// flags that would open the page to other machines without tokens.
package pageserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/run/export"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Flags are the flags of `fulgurite page`.
type Flags struct {
	Listening `embed:""`
	Files     trust.Files `embed:"" envprefix:"FULGURITE_PAGE_"`
	TLSCA     string      `help:"Certificates of authorities that gateways and samplers may have theirs from, PEM, besides those of the system." name:"tls-ca" env:"FULGURITE_TLS_CA" placeholder:"FILE" type:"path"`
}

// Options returns the part of the options that the flags give.
func (f Flags) Options() Listening {
	l := f.Listening
	l.TLS = f.Files
	return l
}

// Peers says how the page asks samplers and gateways.
func (f Flags) Peers() (trust.Peers, error) {
	trusted, err := trust.Authorities(f.TLSCA)
	if err != nil {
		return trust.Peers{}, usage("%w", err)
	}
	key, err := trust.ReadKey(trust.FleetKey)
	if err != nil {
		return trust.Peers{}, usage("%w", err)
	}
	return trust.Peers{Key: key, TLS: trusted}, nil
}

// Listening has the flags that say where the page is served, and to whom.
type Listening struct {
	Listen      string `help:"Address to listen on, host:port, instead of loopback. Needs --tokens, and TLS, --behind-proxy or --insecure." env:"FULGURITE_PAGE_LISTEN" placeholder:"ADDRESS"`
	Tokens      string `help:"File of tokens (fulgurite token create): everybody has to log in with one." env:"FULGURITE_TOKENS" placeholder:"FILE" type:"path"`
	BehindProxy bool   `help:"A proxy in front serves over TLS, and sends the addresses of clients in X-Forwarded-For." env:"FULGURITE_PAGE_BEHIND_PROXY"`
	Insecure    bool   `help:"Serve other machines without TLS: tokens can be read on the way." env:"FULGURITE_PAGE_INSECURE"`

	// TLS names the certificate, for which each program has its own flags.
	TLS trust.Files `kong:"-"`
}

// UsageError is a mistake in the flags, which the error names.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Check returns an error if the flags would open the page to someone who has not been
// admitted.
func (l Listening) Check() error {
	host, _, err := net.SplitHostPort(l.Listen)
	local := l.Listen == "" || err == nil && access.IsLoopback(host)
	switch {
	case l.Listen != "" && err != nil:
		return usage("--listen %q: want host:port, for example 0.0.0.0:%d", l.Listen, DefaultPort)
	case l.TLS.Check() != nil:
		return usage("%w", l.TLS.Check())
	case l.BehindProxy && l.TLS.Given():
		return usage("--behind-proxy: the proxy serves over TLS, so --tls-cert has no use")
	case !local && l.Tokens == "":
		return usage("--listen %s: other machines can reach it, so --tokens is needed: make the file with `fulgurite token create NAME --file FILE`", l.Listen)
	case l.BehindProxy && l.Tokens == "":
		return usage("--behind-proxy: everyone who reaches the proxy reaches the page, so --tokens is needed")
	case !local && !l.TLS.Given() && !l.BehindProxy && !l.Insecure:
		return usage("--listen %s: give --tls-cert and --tls-key, or --behind-proxy if a proxy serves over TLS, or --insecure", l.Listen)
	}
	if l.Tokens != "" {
		if _, err := access.File(l.Tokens).Tokens(); err != nil {
			return usage("--tokens: %w: make one with `%s`", err, shell.Command("token", "create", "NAME", "--file", l.Tokens))
		}
	}
	return nil
}

// open listens on the given port, which must be free. If none is given, it listens on the
// default port, or on any free port if that is in use.
func (l Listening) open(ctx context.Context, port *int, log *zap.Logger) (net.Listener, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.Listen != "" && port != nil {
		return nil, usage("--listen and --port: give one of them")
	}
	certificate, err := l.TLS.Open(log)
	if err != nil {
		return nil, usage("%w", err)
	}
	listener, err := l.listen(ctx, port)
	if err != nil {
		return nil, err
	}
	return fleet.Secure(listener, certificate), nil
}

func (l Listening) listen(ctx context.Context, port *int) (net.Listener, error) {
	if l.Listen != "" {
		listener, err := fleet.Listen(ctx, l.Listen)
		if err != nil {
			return nil, usage("--listen: %w", err)
		}
		return listener, nil
	}
	wanted := DefaultPort
	if port != nil {
		wanted = *port
	}
	if wanted < 0 || wanted > 65535 {
		return nil, usage("the page's port %d: want one from 0 to 65535", wanted)
	}
	listener, err := fleet.Listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	switch {
	case err == nil:
		return listener, nil
	case port == nil:
		return fleet.Listen(ctx, "127.0.0.1:0")
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, usage("the page's port %d is in use; give another one, or 0 for any", wanted)
	}
	return nil, usage("the page's port: %w", err)
}

// guard returns the guard that admits those whom the flags admit.
func (l Listening) guard(at net.Addr, person string) (*access.Guard, error) {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil, fmt.Errorf("read the address %s: %w", at, err)
	}
	return access.New(access.Options{
		Tokens: access.File(l.Tokens), Anywhere: l.BehindProxy || !access.IsLoopback(host), Secure: l.TLS.Given() || l.BehindProxy, Proxy: l.BehindProxy,
		Local: person, Cookie: "fulgurite_" + port,
	})
}

// DefaultPort is the page's default port. It follows those of the other parts of a stack.
const DefaultPort = 8235

// closeTimeout bounds what Close waits for.
const closeTimeout = 5 * time.Second

// Options say what to serve.
type Options struct {
	Records fleet.Records
	Dial    Dial
	// Gateway returns the URL at which versions can be asked, ending in "/v1", or "". If
	// it is nil, the page uses the gateway that holds the lease.
	Gateway func() string
	// Peers says how gateways and samplers are asked, and ServingKey is what the gateway's
	// /v1 wants.
	Peers      trust.Peers
	ServingKey string
	// Loaded returns the versions that this process has in memory. It is nil if this
	// process samples nothing.
	Loaded func() []model.VersionID
	// Port is the port on loopback. If it is nil, the page uses the default port, or any
	// free port if that is in use.
	Port      *int
	Listening Listening
	// Local is the name under which actions are recorded if nobody logs in.
	Local string
	// Starter makes what starts runs; nil: the page starts none.
	Starter func(Operate) actions.Starter
	// Place is where the commands that the page shows find the runs.
	Place shell.Place
	Log   *zap.Logger
}

// Served is a page that is being served.
type Served struct {
	server *fleet.Server
	page   *page.Server
	live   *live
	url    string
}

// Serve serves the page.
func Serve(ctx context.Context, o Options) (*Served, error) {
	listener, err := o.Listening.open(ctx, o.Port, o.Log)
	if err != nil {
		return nil, err
	}
	guard, err := o.Listening.guard(listener.Addr(), o.Local)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	asked := &live{records: o.Records, dial: o.Dial, gateway: o.Gateway, loaded: o.Loaded, peers: o.Peers}
	acts := newOperate(asked)
	shown := page.Options{
		Records: o.Records.Store, Blobs: o.Records.Blobs, Codecs: o.Records.Codecs.Named, Live: asked, Fleet: asked, Log: o.Log, Place: o.Place, Guard: guard, Operator: acts, Exporter: &exporter{records: o.Records, operator: acts.Operator},
		TLS: o.Peers.TLS, ServingKey: o.ServingKey,
		Why: o.Place.Complete("this page starts no runs: use `fulgurite train SPEC`, or `fulgurite page` on the machine with the files of the spec"),
	}
	if o.Starter != nil {
		shown.Starter = o.Starter(acts)
	}
	p, err := page.New(shown)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := fleet.Serve(listener, p, o.Log)
	return &Served{server, p, asked, server.URL()}, nil
}

// URL returns the URL of the page.
func (s *Served) URL() string { return s.url }

// Close stops serving the page and ends the streams of readers who follow a run.
func (s *Served) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.page.Close()
	err := s.server.Close(ctx)
	s.live.close()
	return err
}

// Operate has the code of the commands by which the page acts.
type Operate struct {
	operator.Operator
	live *live
}

func newOperate(l *live) Operate {
	o := Operate{live: l}
	o.Operator = operator.Operator{Store: l.records.Store, Dial: func(ctx context.Context) (client.Client, string, func(), error) {
		c, err := l.reach(ctx)
		return c.Client, c.Namespace, func() {}, err // others use the connection too
	}}
	return o
}

// reachTimeout is how long Temporal may take to answer at all.
const reachTimeout = 2 * time.Second

// Reach implements actions.Operator.
func (o Operate) Reach(ctx context.Context) error {
	c, err := o.live.reach(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{}); err != nil {
		return fmt.Errorf("Temporal does not answer: %w", err)
	}
	return nil
}

// Act implements actions.Operator. If Temporal can't be reached, it refuses the action at
// once instead of waiting.
func (o Operate) Act(ctx context.Context, a record.Action) (record.Action, error) {
	if !actions.MovesPointer(a.Name) {
		if err := o.Reach(ctx); err != nil {
			a.Outcome, a.Result.Message = record.ActionRefused, fmt.Sprintf("nothing was done: %v", err)
			return a, err
		}
	}
	return o.Operator.Act(ctx, a)
}

// Temporal returns the connection that the page uses. The caller must not close it.
func (o Operate) Temporal(ctx context.Context) (client.Client, error) {
	c, err := o.live.reach(ctx)
	return c.Client, err
}

// maxExported is the maximum size of a version's files that the page exports, in bytes.
const maxExported = 8 << 30

// exporter writes the files of versions. It exports one version at a time, because the
// whole model is in memory while its files are written.
type exporter struct {
	records  fleet.Records
	operator operator.Operator
	one      sync.Mutex
}

// Export implements actions.Exporter.
func (e *exporter) Export(ctx context.Context, a record.Action) (dir string, done func() error, out record.Action, err error) {
	if !e.one.TryLock() {
		return "", nil, a, errors.New("another version is being exported")
	}
	defer e.one.Unlock()
	write := func() error {
		if dir, err = os.MkdirTemp("", "fulgurite-export-"); err != nil {
			return err
		}
		if err = e.write(ctx, a, dir); err != nil {
			err, dir = errors.Join(err, os.RemoveAll(dir)), ""
		}
		return err
	}
	out, err = e.operator.Record(ctx, a, func(context.Context, record.Action) (record.ActionResult, error) {
		err := write()
		if errors.Is(err, export.ErrFormat) || errors.Is(err, record.ErrNotFound) || errors.Is(err, operator.ErrRefused) {
			return record.ActionResult{}, operator.Refuse("%s", err)
		}
		of := ""
		if a.Input.Policy != "" {
			of = " of " + a.Input.Policy
		}
		return record.ActionResult{Message: fmt.Sprintf("version %d%s was given out as %s", *a.Input.Version, of, a.Input.Format)}, err
	})
	if err == nil && dir == "" { // it was sent twice, and is on record once
		err = write()
	}
	return dir, func() error { return os.RemoveAll(dir) }, out, err
}

// policyName returns how references name the policy of an action: RUN, or RUN:POLICY.
func policyName(a record.Action) string {
	if a.Input.Policy == "" {
		return a.Run
	}
	return a.Run + ":" + a.Input.Policy
}

func (e *exporter) write(ctx context.Context, a record.Action, dir string) error {
	_, policy, err := e.records.Catalog.Policy(ctx, policyName(a))
	if err != nil {
		return err
	}
	id := model.VersionID{Run: a.Run, Policy: policy, Number: *a.Input.Version}
	if !slices.Contains([]string{export.HF, export.PEFT}, a.Input.Format) {
		return operator.Refuse("format: %q: want hf or peft; `%s` writes the other formats", a.Input.Format, shell.Command("export", id.String(), "FILE.gguf"))
	}
	sp, err := e.records.Catalog.Spec(ctx, a.Run)
	if err != nil {
		return err
	}
	if err := catalog.OnePolicy(sp, id); err != nil {
		return operator.Refuse("%s, with `%s`", err, shell.Command("export", model.VersionID{Run: id.Run, Policy: sp.PolicyNames()[0], Number: id.Number}.String(), "DIRECTORY"))
	}
	if err := e.small(ctx, id); err != nil {
		return err
	}
	k, _, err := e.records.Catalog.Load(ctx, id)
	if err != nil {
		return err
	}
	if a.Input.Format == export.PEFT && k.Adapter == nil {
		return operator.Refuse("format: the model was trained as a whole, and has no adapter: take hf")
	}
	_, err = export.Version{Name: id.String(), Model: sp.ForPolicy(policy).Model, Checkpoint: k, Blobs: e.records.Blobs}.Write(ctx, dir, a.Input.Format, "")
	return err
}

// small returns an error if a version's files are too large for the page to export.
func (e *exporter) small(ctx context.Context, id model.VersionID) error {
	v, err := e.records.Store.Version(ctx, id)
	if err != nil || v.Manifest == "" {
		return err
	}
	text, err := e.records.Blobs.Get(ctx, v.Manifest)
	if err != nil {
		return err
	}
	m, err := model.ParseManifest(text)
	if err != nil {
		return err
	}
	sum := int64(0)
	for name, f := range m.Files {
		if name != model.OptimizerFile {
			sum += f.Size
		}
	}
	if m.Base != nil {
		sum += m.Base.Size
	}
	if sum > maxExported {
		return operator.Refuse("its files have %d bytes, more than a page sends: use `%s`", sum, shell.Command("export", id.String(), "DIRECTORY"))
	}
	return nil
}
