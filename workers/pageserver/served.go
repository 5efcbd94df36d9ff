package pageserver

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

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
	listener, err := o.Listening.open(ctx, o.Port)
	if err != nil {
		return nil, err
	}
	guard, err := o.Listening.guard(listener.Addr(), o.Local)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	asked := &live{records: o.Records, dial: o.Dial, gateway: o.Gateway, loaded: o.Loaded}
	acts := newOperate(asked)
	shown := page.Options{
		Records: o.Records.Store, Blobs: o.Records.Blobs, Codecs: o.Records.Codecs.Named, Live: asked, Fleet: asked, Log: o.Log, Place: o.Place, Guard: guard, Operator: acts, Exporter: &exporter{records: o.Records, operator: acts.Operator},
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
	return &Served{server, p, asked, o.Listening.url(server.URL())}, nil
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
