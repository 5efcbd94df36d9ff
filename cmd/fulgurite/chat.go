package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/catalog"
	"github.com/fulgurite/fulgurite/internal/fleet"
)

type chatCommand struct {
	Version string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated."`
	Input   string `arg:"" help:"What to ask."`
	JSON    bool   `help:"Print JSON." name:"json"`

	Records recordFlags `embed:""`
}

// Run needs no stack: it samples from the records in this process, or from the servers
// that the run's spec names. The run's agent gets an attempt's address, as in training;
// what it does there is on no record afterwards.
func (c *chatCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	db, blobs, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	records := fleet.Records{Store: db, Blobs: blobs, Catalog: catalog.Catalog{Store: db, Blobs: blobs}, Codecs: fleet.NewCodecs(blobs)}
	v, choice, err := records.Catalog.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	sp, err := records.Catalog.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	if sp.Agent.Temporal != nil {
		return usagef("the agent of run %s is %s of your own workers (agent.temporal), which only a stack can start: ask the version itself, as model %s at the address that `fulgurite dev%s` prints",
			v.Run, sp.Agent.Temporal.Kind(), v.VersionID, s.flag())
	}
	conversation, err := newConversation(ctx, records, sp, v.VersionID, s.logger(ctx, t.err))
	if err != nil {
		return err
	}
	defer func() { _ = conversation.Close() }() // its records are of no use to anybody
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

// print writes the answer, and for people what was chosen where they named no version.
func (c *chatCommand) print(t *terminal, version string, choice catalog.Choice, result agent.Result) error {
	if c.JSON {
		return t.json(map[string]string{"version": version, "choice": string(choice), "input": c.Input, "answer": result.Text})
	}
	if choice.Unevaluated() {
		fmt.Fprintf(t.err, "%s (%s)\n", version, choice)
	}
	answer := result.Text
	if t.tty {
		answer = strings.Map(printable, answer)
	}
	t.printf("%s\n", answer)
	return nil
}

// printable keeps a model from steering the terminal of whoever asked it.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}
