// Package token holds the commands that make, list and revoke tokens. With a token, a
// person logs in to the page.
package token

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/page/access"
)

// Commands are `fulgurite token …`.
type Commands struct {
	Create create `cmd:"" help:"Make a token and print its secret, which is shown once."`
	List   list   `cmd:"" help:"List the tokens, without their secrets."`
	Revoke revoke `cmd:"" help:"Take a token away: it opens nothing from then on, nor what was opened with it."`
}

// place says where the tokens are.
type place struct {
	File string `help:"File of tokens (default: tokens.json in --dir)." env:"FULGURITE_TOKENS" placeholder:"FILE" type:"path"`
}

func (p place) file(s *state.Flags) access.File { return access.File(cmp.Or(p.File, DefaultFile(s))) }

// DefaultFile returns the path of a directory's file of tokens.
func DefaultFile(s *state.Flags) string { return filepath.Join(s.Dir, "tokens.json") }

type create struct {
	Name    string        `arg:"" help:"Whose token it is: what it does is on record under this name."`
	Rights  string        `help:"read, or operate, which includes read." default:"read" placeholder:"RIGHT"`
	Expires time.Duration `help:"After how long it ends, for example 720h (default: never)." placeholder:"DURATION"`
	Place   place         `embed:""`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// created is the JSON output of `fulgurite token create --json`.
type created struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// Outputs returns what the command prints as JSON.
func (*create) Outputs() []any { return []any{created{}} }

// Run makes the token.
func (c *create) Run(s *state.Flags, t *terminal.Terminal) error {
	now := time.Now()
	var end time.Time
	switch {
	case c.Expires < 0:
		return terminal.Usagef("--expires %s: want a time that is to come", c.Expires)
	case c.Expires > 0:
		end = now.Add(c.Expires)
	}
	secret, err := c.Place.file(s).Create(c.Name, []access.Right{access.Right(c.Rights)}, now, end)
	if errors.Is(err, access.ErrToken) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(created{c.Name, secret})
	}
	t.Printf("%s\n", secret)
	fmt.Fprintf(t.Err, "This is the token of %s, which may %s. It is shown this once.\n", c.Name, c.Rights)
	return nil
}

type list struct {
	Place place `embed:""`
	JSON  bool  `help:"Print JSON." name:"json"`
}

// listed is a token as `fulgurite token list --json` prints it.
type listed struct {
	Name    string         `json:"name"`
	Rights  []access.Right `json:"rights"`
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires,omitzero"`
	Expired bool           `json:"expired"`
}

// Outputs returns what the command prints as JSON.
func (*list) Outputs() []any { return []any{[]listed{}} }

// Run lists the tokens. If the file does not exist, there are none.
func (c *list) Run(s *state.Flags, t *terminal.Terminal) error {
	all, err := c.Place.file(s).Tokens()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := make([]listed, 0, len(all))
	for _, one := range all {
		lines = append(lines, listed{one.Name, one.Rights, one.Created, one.Expires, one.Expired(time.Now())})
	}
	if c.JSON {
		return t.JSON(lines)
	}
	t.Printf("%-24s  %-8s  %-26s  %s\n", "name", "rights", "created", "expires")
	for _, l := range lines {
		end := "never"
		if !l.Expires.IsZero() {
			end = readable.Time(l.Expires)
		}
		if l.Expired {
			end += " (expired)"
		}
		t.Printf("%-24s  %-8s  %-26s  %s\n", l.Name, l.Rights[0], readable.Time(l.Created), end)
	}
	return nil
}

type revoke struct {
	Name  string `arg:"" help:"Name of the token."`
	Place place  `embed:""`
}

// Run revokes the token.
func (c *revoke) Run(s *state.Flags, t *terminal.Terminal) error {
	err := c.Place.file(s).Revoke(c.Name)
	if errors.Is(err, access.ErrToken) {
		return terminal.Usage(err)
	}
	if err == nil {
		t.Printf("The token of %s is revoked.\n", c.Name)
	}
	return err
}
