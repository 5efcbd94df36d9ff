// Package completion makes shells complete command lines of this program: its commands,
// flags, choices, the names of runs and their versions. A shell completes files by itself
// where this package has no word. The scripts of the shells only ask `fulgurite complete`,
// so that they need not change when commands do.
package completion

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

//go:embed scripts
var scripts embed.FS

// Script is `fulgurite completion`.
type Script struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish. Put \"source <(fulgurite completion bash)\" into ~/.bashrc, the same with zsh into ~/.zshrc, or \"fulgurite completion fish | source\" into ~/.config/fish/config.fish."`
}

// Run prints the script.
func (c *Script) Run(t *terminal.Terminal) error {
	text, err := scripts.ReadFile("scripts/" + c.Shell)
	if err != nil {
		return fmt.Errorf("read the script: %w", err)
	}
	t.Printf("%s", text)
	return nil
}

// Words is `fulgurite complete`, which the scripts call.
type Words struct {
	Line []string `arg:"" optional:"" help:"The words after the program's name; the last one, which may be empty, is completed."`
}

// readTimeout limits how long names are read from the store: a person waits.
const readTimeout = 2 * time.Second

// Run prints a line for each word that may stand there, with its description after a tab.
func (c *Words) Run(ctx context.Context, parsed *kong.Context, s *state.Flags, t *terminal.Terminal) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	line := c.Line
	if len(line) == 0 {
		line = []string{""}
	}
	for _, one := range candidates(parsed.Model.Node, line, &recorded{ctx: ctx, flags: *s, line: line, terminal: t}) {
		t.Printf("%s\n", strings.TrimRight(one.word+"\t"+one.help, "\t"))
	}
	return nil
}
