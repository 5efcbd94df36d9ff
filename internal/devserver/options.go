package devserver

import (
	"time"

	"go.temporal.io/api/enums/v1"
	"go.uber.org/zap"
)

// Defaults of Options, and the ports that the `temporal` CLI and its users expect.
const (
	DefaultNamespace    = "default"
	DefaultRetention    = 90 * 24 * time.Hour
	DefaultFrontendPort = 7233
	DefaultUIPort       = 8233
)

// Options say what to start. The zero value is a server in memory, without Web
// UI, on a free port.
type Options struct {
	// Dir holds the database; it is made if it is absent. If it is empty, everything is
	// kept in memory, or in Database.
	Dir string
	// Database is the URL of a PostgreSQL server, postgres://…/NAME, that keeps
	// everything instead: in the databases NAME ("temporal" if the URL has none) and
	// NAME_visibility, which are made if they are absent. One server at a time may run on
	// them.
	Database string
	// FrontendPort and UIPort are the ports to listen on. If one is taken, another free
	// one is used. Zero means any free port.
	FrontendPort int
	UIPort       int
	// UI says whether to serve the Web UI.
	UI bool
	// Namespace is registered if it is absent; empty means DefaultNamespace.
	Namespace string
	// Retention is how long the history of a closed workflow is kept; zero means
	// DefaultRetention.
	Retention time.Duration
	// HistoryEvents is the length of a history from which on the server suggests to
	// continue as new; zero is the server's default, 4,096.
	HistoryEvents int
	// SearchAttributes are registered in Namespace if they are absent.
	SearchAttributes map[string]enums.IndexedValueType
	// Log receives the server's warnings and errors; nil drops them.
	Log *zap.Logger

	// locked says that another process has locked Dir for this server.
	locked bool
}

func (o Options) withDefaults() Options {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}
