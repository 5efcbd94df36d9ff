// Package traffic implements `fulgurite traffic`, which shows the recorded conversations that
// clients had with served versions, what people said of them, and what candidates replied to
// the same in the shadow, and writes conversations to files.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/atif"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/run/traffic"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Command is `fulgurite traffic`.
type Command struct {
	Run_        string            `arg:"" name:"run" help:"Name of the run."`
	Number      *int              `arg:"" optional:"" help:"Number of a conversation: print what was said in it, and of it."`
	Export      string            `help:"Write the conversations to this file; the name ends in .jsonl or .parquet. A pipe or /dev/stdout gets JSONL." placeholder:"FILE" type:"path"`
	Format      string            `help:"With --export, what a row is: ${enum}. \"atif\" is a trajectory in Harbor's format ATIF 1.7, without feedback, in a file whose name ends in .jsonl." enum:"conversations,atif" default:"conversations"`
	Tokens      bool              `help:"With --export, add token ids and log-probabilities."`
	Experiments bool              `help:"List the experiments of the run, with what users thought of each candidate, in place of conversations."`
	Shadow      bool              `help:"Print what a candidate replied in the shadow to recorded prompts, beside the recorded replies."`
	Candidate   *int              `help:"With --shadow, the version that replied (default: the newest that did)." placeholder:"N"`
	JSON        bool              `help:"Print JSON." name:"json"`
	Choice      choiceFlags       `embed:""`
	Records     state.RecordFlags `embed:""`
}

// choiceFlags say which conversations of a run are meant.
type choiceFlags struct {
	Policy   string `help:"Only conversations with this policy." placeholder:"POLICY"`
	Version  *int   `help:"Only conversations with this version." placeholder:"N"`
	Label    string `help:"Only conversations with feedback that has this label." placeholder:"LABEL"`
	User     string `help:"Only conversations of this user, as the client names it." placeholder:"NAME" xor:"user"`
	UserHash string `help:"Only conversations of users whose hash begins so." placeholder:"HEX" xor:"user"`
	Feedback bool   `help:"Only conversations with feedback."`
	Before   int    `help:"Only conversations with smaller numbers, to list what comes after the last line." placeholder:"N"`
	Limit    int    `help:"How many at most; 0 is all (default: 50, and all with --export)." default:"-1" placeholder:"N" show-default:"false"`
}

// selects reports whether the flags select some conversations of a policy.
func (f choiceFlags) selects() bool {
	f.Policy = ""
	return f != choiceFlags{Limit: -1}
}

// rowsATIF is the value of --format for trajectories, which Harbor's tools read.
const rowsATIF = "atif"

// listedAtOnce is how many conversations are listed if --limit is not given.
const listedAtOnce = 50

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any {
	return []any{traffic.Row{}, []record.ConversationSummary{}, []experimentRow{}, []traffic.Pair{}}
}

// Run lists conversations, prints one, or writes them to a file.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	switch {
	case c.Experiments && (c.Number != nil || c.Export != "" || c.Choice.selects()):
		return terminal.Usagef("--experiments lists all experiments of a policy: give only --policy and --json with it")
	case c.Number != nil && c.Export != "":
		return terminal.Usagef("--export writes all conversations that the flags select: leave out the number %d", *c.Number)
	case c.Export == "" && (c.Tokens || c.Format != "conversations"):
		return terminal.Usagef("--tokens and --format say what is written to a file: give --export, too")
	case c.Format == rowsATIF && c.Tokens:
		return terminal.Usagef("--tokens has no effect with --format atif, which always has them")
	case c.Choice.Limit < -1 || c.Choice.Before < 0:
		return terminal.Usagef("--limit and --before are at least 0")
	}
	if err := c.checkShadow(); err != nil {
		return err
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	if _, err := records.Store.Run(ctx, c.Run_); err != nil {
		return err
	}
	switch {
	case c.Experiments:
		return c.experiments(ctx, t, records)
	case c.Number != nil:
		return c.one(ctx, t, records)
	case c.Shadow:
		return c.shadow(ctx, t, records)
	}
	query, err := c.query(ctx, records)
	switch {
	case err != nil:
		return err
	case c.Export != "":
		return c.export(ctx, t, records, query)
	}
	all, err := records.Store.Conversations(ctx, query)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return t.JSON(append([]record.ConversationSummary{}, all...))
	}
	return c.list(t, all, query)
}

// query returns what the flags select.
func (c *Command) query(ctx context.Context, records fleet.Records) (record.ConversationQuery, error) {
	f := c.Choice
	q := record.ConversationQuery{Run: c.Run_, Policy: f.Policy, Version: f.Version, Label: f.Label, User: f.UserHash, WithFeedback: f.Feedback, Before: f.Before, Limit: f.Limit}
	if f.Limit == -1 {
		q.Limit = listedAtOnce
		if c.Export != "" {
			q.Limit = 0
		}
	}
	if f.User == "" {
		return q, nil
	}
	var err error
	q.User, err = records.Store.HashUser(ctx, f.User)
	return q, err
}

// shownHash is how many digits of a user's hash are shown.
const shownHash = 12

func (c *Command) list(t *terminal.Terminal, all []record.ConversationSummary, q record.ConversationQuery) error {
	if len(all) == 0 {
		t.Printf("no recorded conversation of %s matches: what is recorded is said by traffic.record of its spec\n", c.Run_)
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "number\tversion\tcalls\tfeedback\tunused\tlast call\tuser\tkey\tname")
	for _, one := range all {
		version := fmt.Sprint(one.Version)
		if one.Candidate {
			version += " (candidate)"
		}
		fmt.Fprintf(w, "%d\t%s:%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", one.Number, one.Policy, version, one.Calls, one.Feedback, one.Unused, readable.Time(one.Last),
			one.User[:min(len(one.User), shownHash)], terminal.Escape(one.Key), terminal.Escape(one.Name))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if last := all[len(all)-1].Number; q.Limit > 0 && len(all) == q.Limit && last > 0 {
		t.Printf("There may be more: give --before %d.\n", last)
	}
	return nil
}

// one prints a conversation.
func (c *Command) one(ctx context.Context, t *terminal.Terminal, records fleet.Records) error {
	row, err := traffic.Source{Store: records.Store}.Row(ctx, c.Run_, *c.Number)
	switch {
	case errors.Is(err, record.ErrForgotten):
		return terminal.Usagef("conversation %d of %s was removed", *c.Number, c.Run_)
	case errors.Is(err, record.ErrNotFound):
		return terminal.Usagef("run %s has no recorded conversation %d", c.Run_, *c.Number)
	case err != nil:
		return err
	case c.JSON:
		return t.JSON(row)
	}
	printConversation(t, row)
	return nil
}

// export writes the conversations to a file.
func (c *Command) export(ctx context.Context, t *terminal.Terminal, records fleet.Records, q record.ConversationQuery) (err error) {
	var rows int
	if c.Format == rowsATIF {
		source := atif.Source{Store: records.Store, Blobs: records.Blobs, Run: c.Run_}
		rows, err = dataset.WriteLines(ctx, c.Export, func(ctx context.Context, yield func(atif.Trajectory) error) error {
			all, err := records.Store.Conversations(ctx, q)
			if err != nil {
				return err
			}
			addresses := make([]record.Address, len(all))
			for i, one := range all {
				addresses[i] = one.Address()
			}
			return source.Conversations(ctx, addresses, yield)
		})
	} else {
		source := traffic.Source{Store: records.Store, Tokens: c.Tokens}
		rows, err = dataset.WriteFile(ctx, c.Export, func(ctx context.Context, yield func(traffic.Row) error) error {
			return source.Rows(ctx, q, yield)
		})
	}
	switch {
	case errors.Is(err, dataset.ErrFormat):
		return terminal.Usage(err)
	case err != nil:
		return err
	}
	out := t.Out
	if dataset.IsStream(c.Export) {
		out = t.Err // the rows may be in the standard output
	}
	fmt.Fprintf(out, "%s of %s %s in %s\n", readable.Count(rows, "conversation"), c.Run_, readable.IsOrAre(rows), c.Export)
	return nil
}

// printConversation prints a conversation as readable text. What people and models wrote is escaped.
func printConversation(t *terminal.Terminal, row traffic.Row) {
	t.Printf("%s: %s@%d, begun %s\n", row.Conversation, row.Policy, row.Version, row.Begun)
	for _, field := range [][2]string{{"name", row.Name}, {"key", row.Key}, {"user", row.User}} {
		if field[1] != "" {
			t.Printf("%s %s\n", field[0], terminal.Escape(field[1]))
		}
	}
	if row.Redacted {
		t.Printf("its texts were changed before they were stored\n")
	}
	for _, r := range row.Replies {
		t.Printf("call %d, %s\n", r.Call, terminal.Escape(r.ID))
		printAsked(t, r)
		for i, m := range r.Choices {
			who := "reply"
			if len(r.Choices) > 1 {
				who = fmt.Sprintf("reply %d", i)
			}
			printMessage(t, who, m)
		}
		for _, f := range row.Feedback {
			if f.Reply == r.ID {
				printFeedback(t, f)
			}
		}
	}
	for _, f := range row.Feedback {
		if f.Reply == "" {
			printFeedback(t, f)
		}
	}
}

// printAsked prints what a reply replied to, without what the call before it has.
func printAsked(t *terminal.Terminal, r traffic.Reply) {
	if r.Known > 0 {
		t.Printf("  (after %s of call %d)\n", readable.Count(r.Known, "message"), r.Parent)
	}
	for _, m := range r.Messages[r.Known:] {
		printMessage(t, m.Role, m)
	}
	if r.Text != "" {
		printMessage(t, "prompt", traffic.Message{Content: r.Text})
	}
}

func printMessage(t *terminal.Terminal, who string, m traffic.Message) {
	for _, word := range []string{m.Name, m.ToolCallID} {
		if word != "" {
			who += " " + word
		}
	}
	if m.Reasoning != "" {
		printText(t, who+", thinking", m.Reasoning)
	}
	if m.Content != "" || m.ToolCalls == "" {
		printText(t, who, m.Content)
	}
	if m.ToolCalls != "" {
		printText(t, who+", calls", m.ToolCalls)
	}
}

func printFeedback(t *terminal.Terminal, f traffic.Judgment) {
	var words []string
	if f.Reward != nil {
		words = append(words, fmt.Sprintf("reward %g", *f.Reward))
	}
	if f.Thumb != "" {
		words = append(words, "thumb "+f.Thumb)
	}
	if f.PreferredOver != "" {
		words = append(words, "better than "+f.PreferredOver)
	}
	if len(f.Labels) > 0 {
		words = append(words, "labels "+strings.Join(f.Labels, ", "))
	}
	if f.User != "" {
		words = append(words, "by "+f.User[:min(len(f.User), shownHash)])
	}
	if f.Step > 0 {
		words = append(words, fmt.Sprintf("learned in step %d", f.Step))
	}
	about := "feedback"
	if f.Reply == "" {
		about = "feedback on the conversation"
	}
	t.Printf("  %s: %s\n", about, terminal.Escape(strings.Join(words, "; ")))
	if f.CorrectedText != nil {
		printText(t, "  should have said", *f.CorrectedText)
	}
	if f.Comment != "" {
		printText(t, "  comment", f.Comment)
	}
}

// printText prints a text below its title.
func printText(t *terminal.Terminal, title, text string) {
	t.Printf("  %s:\n", terminal.Escape(title))
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if text != "" {
			t.Printf("    %s\n", terminal.Escape(line))
		}
	}
}
