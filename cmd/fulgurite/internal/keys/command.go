// Package keys holds the commands that make, list and revoke serving keys: API keys by which
// clients ask served versions and give feedback. The keys themselves are not on record.
package keys

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
)

// Commands are `fulgurite keys …`.
type Commands struct {
	Create create `cmd:"" help:"Make a key and print it, which is done once."`
	List   list   `cmd:"" help:"List the keys by name, with scopes and limits."`
	Revoke revoke `cmd:"" help:"Take a key away: gateways refuse it within a second."`

	Records state.RecordFlags `embed:""`
}

type create struct {
	Name      string   `arg:"" help:"Whose key it is: conversations and feedback are recorded under this name. It can't be used again."`
	Scope     []string `help:"What it opens: serve (ask versions), feedback (judge the replies that this key got), feedback-any (judge replies of every key), consent (who speaks has consented to be recorded)." default:"serve,feedback" placeholder:"SCOPE,…"`
	PerMinute int      `help:"How many requests a minute each gateway answers; 0 is no limit." default:"0" placeholder:"N"`
	JSON      bool     `help:"Print JSON." name:"json"`
}

// created is the JSON output of `fulgurite keys create --json`.
type created struct {
	Name   string   `json:"name"`
	Key    string   `json:"key"`
	Scopes []string `json:"scopes"`
}

// Outputs returns what the command prints as JSON.
func (*create) Outputs() []any { return []any{created{}} }

// Run makes the key.
func (c *create) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal, all *Commands) error {
	key := record.ServingKey{Name: c.Name, Scopes: c.Scope, PerMinute: c.PerMinute}
	if err := key.Check(); err != nil {
		return terminal.Usage(err)
	}
	records, err := s.OpenRecords(ctx, t, all.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	secret, err := records.Store.CreateServingKey(ctx, key)
	if errors.Is(err, record.ErrConflict) {
		return terminal.Usagef("%v: choose another name", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(created{c.Name, secret, c.Scope})
	}
	t.Printf("%s\n", secret)
	fmt.Fprintf(t.Err, "This is the key %s, with %s %s. It is shown this once.\n", c.Name, readable.Name(len(c.Scope), "scope"), strings.Join(c.Scope, ", "))
	return nil
}

type list struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Outputs returns what the command prints as JSON.
func (*list) Outputs() []any { return []any{[]record.ServingKey{}} }

// Run lists the keys.
func (c *list) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal, all *Commands) error {
	records, err := s.OpenRecords(ctx, t, all.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	found, err := records.Store.ServingKeys(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(append([]record.ServingKey{}, found...))
	}
	t.Printf("%-24s  %-24s  %10s  %-26s  %s\n", "name", "scopes", "per minute", "created", "revoked")
	for _, k := range found {
		limit, revoked := "no limit", "no"
		if k.PerMinute > 0 {
			limit = fmt.Sprint(k.PerMinute)
		}
		if !k.Revoked.IsZero() {
			revoked = readable.Time(k.Revoked)
		}
		t.Printf("%-24s  %-24s  %10s  %-26s  %s\n", k.Name, strings.Join(k.Scopes, ","), limit, readable.Time(k.Created), revoked)
	}
	return nil
}

type revoke struct {
	Name string `arg:"" help:"Name of the key."`
}

// Run revokes the key.
func (c *revoke) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal, all *Commands) error {
	records, err := s.OpenRecords(ctx, t, all.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	err = records.Store.RevokeServingKey(ctx, c.Name)
	if errors.Is(err, record.ErrNotFound) {
		return terminal.Usagef("no key has the name %s: `%s` lists them", terminal.Escape(c.Name), s.Command("keys", "list"))
	}
	if err == nil {
		t.Printf("The key %s is revoked.\n", c.Name)
	}
	return err
}
