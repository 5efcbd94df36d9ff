package traffic

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/traffic"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// checkShadow reports flags that say nothing together with --shadow, or without it.
func (c *Command) checkShadow() error {
	f := c.Choice
	switch {
	case !c.Shadow && c.Candidate != nil:
		return terminal.Usagef("--candidate says whose replies in the shadow are shown: give --shadow, too")
	case !c.Shadow:
		return nil
	case c.Number != nil || c.Export != "":
		return terminal.Usagef("--shadow lists replies in the shadow: leave out --export, and the number of a conversation")
	case f.Version != nil || f.Label != "" || f.User != "" || f.UserHash != "" || f.Feedback:
		return terminal.Usagef("--shadow takes --candidate, --policy, --before and --limit to select; leave the others out")
	}
	return nil
}

// shadow lists recorded replies beside those of a candidate in the shadow.
func (c *Command) shadow(ctx context.Context, t *terminal.Terminal, records fleet.Records) error {
	q := record.ShadowQuery{Run: c.Run_, Policy: c.Choice.Policy, Candidate: c.Candidate, Limit: c.Choice.Limit}
	if q.Policy == "" {
		q.Policy = model.DefaultPolicy
	}
	if c.Choice.Limit == -1 {
		q.Limit = listedAtOnce
	}
	if c.Choice.Before > 0 {
		q.Before = &c.Choice.Before
	}
	pairs, err := traffic.Pairs(ctx, records.Store, q)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return t.JSON(pairs)
	case len(pairs) == 0:
		t.Printf("no reply of a candidate in the shadow is on record: traffic.train.shadow of the spec of %s asks for them\n", c.Run_)
		return nil
	}
	candidate := pairs[0].Shadow.Candidate
	decided, err := reasonOf(ctx, records, q, candidate)
	if err != nil {
		return err
	}
	t.Printf("candidate %d: %s\n", candidate, decided)
	conversations := 0
	for i, p := range pairs {
		if i == 0 || pairs[i-1].Conversation != p.Conversation {
			conversations++
		}
		printPair(t, p)
	}
	if q.Limit > 0 && conversations == q.Limit {
		last, err := record.ParseAddress(pairs[len(pairs)-1].Conversation)
		if err == nil && last.Task > 0 {
			t.Printf("There may be more: give --before %d.\n", last.Task)
		}
	}
	return nil
}

// reasonOf returns what was decided about a candidate.
func reasonOf(ctx context.Context, records fleet.Records, q record.ShadowQuery, candidate int) (string, error) {
	id := activities.DecisionID(candidate)
	d, err := records.Store.Decision(ctx, q.Run, q.Policy, id)
	if err == nil || !errors.Is(err, record.ErrNotFound) {
		return d.Reason, err
	}
	p, err := records.Store.Promotion(ctx, q.Run, q.Policy, id)
	if errors.Is(err, record.ErrNotFound) {
		return "nothing is decided yet", nil
	}
	return p.Reason, err
}

// printPair prints what was asked, and both replies. What people and models wrote is escaped.
func printPair(t *terminal.Terminal, p traffic.Pair) {
	t.Printf("%s, call %d, %s\n", p.Conversation, p.Reply.Call, terminal.Escape(p.Reply.ID))
	printAsked(t, p.Reply)
	who := fmt.Sprintf("version %d, %s in %.3g s, %s", p.Version, readable.Count(p.Tokens, "token"), p.Seconds, p.Reply.Finish)
	for _, m := range p.Reply.Choices {
		printMessage(t, who, m)
	}
	if p.Shadow.Error != "" {
		printText(t, fmt.Sprintf("candidate %d failed", p.Shadow.Candidate), p.Shadow.Error)
		return
	}
	printText(t, fmt.Sprintf("candidate %d, %s in %.3g s, %s", p.Shadow.Candidate, readable.Count(p.Shadow.Tokens, "token"), p.Shadow.Seconds, p.Shadow.Finish), p.Shadow.Text)
}
