package serve

import (
	"context"
	"errors"
	"os"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/workflows"
)

// Temporal is `fulgurite temporal`. It runs the one part of `fulgurite dev` that a
// fleet's other processes don't include: the Temporal server.
type Temporal struct {
	Port     int    `help:"The frontend's port (0: any)." default:"7233" env:"FULGURITE_PORT"`
	UI       bool   `help:"Serve the Web UI too." name:"ui" default:"true" negatable:""`
	UIPort   *int   `help:"The Web UI's port (0: any; default: 8233, or a free one)." env:"FULGURITE_UI_PORT" name:"ui-port" placeholder:"PORT"`
	Database string `help:"PostgreSQL to keep everything in (default: SQLite, in the state's directory)." env:"FULGURITE_TEMPORAL_DATABASE" placeholder:"URL"`
}

// Run keeps the server up until a signal comes.
func (c *Temporal) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	ui := Ports{UIPort: c.UIPort}.ui()
	if c.UI {
		if err := ui.free(); err != nil {
			return err
		}
	}
	o := devserver.Options{
		Dir: s.Layout().Temporal(), Database: c.Database, FrontendPort: c.Port, UIPort: ui.wanted(), UI: c.UI,
		SearchAttributes: workflows.SearchAttributes(), Log: s.ServerLogger(ctx, t.Err),
	}
	if c.Database != "" {
		o.Dir = ""
	}
	server, err := devserver.Start(ctx, o)
	if err != nil {
		return err
	}
	if c.Port != 0 && !server.ListensAt(c.Port) {
		return errors.Join(port{flag: "port", given: &c.Port}.taken(), server.Stop())
	}
	if err := ui.check(server.UIURL(), t); err != nil {
		return errors.Join(err, server.Stop())
	}
	if o.Dir != "" {
		// Other commands find the server through this file of the directory.
		if err := state.WriteJSON(s.AddressFile(), state.Addresses{PID: os.Getpid(), Temporal: server.Address(), UI: server.UIURL()}); err != nil {
			return errors.Join(err, server.Stop())
		}
	}
	t.Printf("Temporal   %s\n", server.Address())
	if c.UI {
		t.Printf("Web UI     %s\n", server.UIURL())
	}
	held, release := WhileHeld(ctx, server)
	defer release()
	<-held.Done()
	if o.Dir != "" && server.CheckDirectory() == nil {
		s.RemoveAddresses()
	}
	return errors.Join(Lost(held), server.Stop())
}
