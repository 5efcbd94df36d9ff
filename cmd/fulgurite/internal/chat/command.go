// Package chat implements `fulgurite chat`, which sends a question to a version through
// the run's own agent.
package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/run/catalog"
)

// Command is `fulgurite chat`.
type Command struct {
	Version string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated."`
	Input   string `arg:"" help:"What to ask."`
	JSON    bool   `help:"Print JSON." name:"json"`

	Records state.RecordFlags `embed:""`
}

// answer is the JSON output of the command.
type answer struct {
	Version string         `json:"version"`
	Choice  catalog.Choice `json:"choice"` // how the version was chosen
	Input   string         `json:"input"`
	Answer  string         `json:"answer"`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{answer{}} }

// Run needs no stack: it samples from the records in this process, or from the servers
// that the run's spec names. The run's agent gets an attempt's address, as in training;
// the attempt's record is removed afterwards.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	v, choice, err := records.Catalog.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	sp, err := records.Catalog.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	if sp.Agent.Temporal != nil {
		return terminal.Usagef("the agent of run %s is %s of your own workers (agent.temporal), which only a stack can start: ask the version itself, as model %s at the address that `%s` prints",
			v.Run, sp.Agent.Temporal.Kind(), v.VersionID, s.Command("dev"))
	}
	conversation, err := newConversation(ctx, records, sp, v.VersionID, s.Logger(ctx, t.Err))
	if err != nil {
		return err
	}
	defer func() { _ = conversation.Close() }() // its records are of no further use
	result, err := conversation.ask(ctx, c.Input)
	if err != nil {
		return err
	}
	if result.Failed() {
		return fmt.Errorf("the agent failed (%s): %s", result.Failure,
			strings.TrimSpace(strings.Join([]string{result.Message, result.Stderr, conversation.refused()}, "\n")))
	}
	if err := c.print(t, v.String(), choice, result); err != nil {
		return err
	}
	if refused := conversation.refused(); refused != "" {
		return errors.New(refused)
	}
	return nil
}

// print writes the answer. Unless the output is JSON, it also writes the chosen version
// to standard error if no evaluation could have chosen it.
func (c *Command) print(t *terminal.Terminal, version string, choice catalog.Choice, result agent.Result) error {
	if c.JSON {
		return t.JSON(answer{version, choice, c.Input, result.Text})
	}
	if choice.Unevaluated() {
		fmt.Fprintf(t.Err, "%s (%s)\n", version, choice)
	}
	text := result.Text
	if t.TTY {
		text = strings.Map(printable, text)
	}
	t.Printf("%s\n", text)
	return nil
}

// printable replaces control characters.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}
