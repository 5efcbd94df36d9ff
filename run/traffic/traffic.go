// Package traffic reads the recorded conversations that clients had with the served versions
// of a run, with what people said of them: for the command that shows them, and as rows of a
// file.
//
// It records nothing and decides nothing about training. A conversation is read as it is at
// that moment, and may go on.
package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
)

// Store is the part of a store that conversations are read from.
type Store interface {
	Conversation(ctx context.Context, run string, number int) (record.Conversation, error)
	Conversations(ctx context.Context, q record.ConversationQuery) ([]record.ConversationSummary, error)
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Feedback(ctx context.Context, run string, conversation int) ([]record.Feedback, error)
	Attempt(ctx context.Context, a record.Address) (record.Attempt, error)
}

// Row is a conversation with its replies and feedback. Its keys are a public contract.
type Row struct {
	Run          string `json:"run" parquet:"run,dict"`
	Conversation string `json:"conversation" parquet:"conversation"` // its address
	Name         string `json:"name" parquet:"name"`
	Key          string `json:"key" parquet:"key,dict"` // name of the client's API key
	User         string `json:"user" parquet:"user"`    // keyed hash
	Policy       string `json:"policy" parquet:"policy,dict"`
	Version      int    `json:"version" parquet:"version"`
	Candidate    bool   `json:"candidate" parquet:"candidate"`
	Redacted     bool   `json:"redacted" parquet:"redacted"`
	Begun        string `json:"begun" parquet:"begun"` // RFC 3339, as all times
	Last         string `json:"last" parquet:"last"`
	// Replies are in the order in which they were recorded.
	Replies []Reply `json:"replies" parquet:"replies"`
	// Feedback is in the order in which it came.
	Feedback []Judgment `json:"feedback" parquet:"feedback"`
}

// Reply is a recorded reply, and what it replied to.
type Reply struct {
	ID     string `json:"id" parquet:"id"`
	Call   int    `json:"call" parquet:"call"`     // its number in the conversation
	Parent int    `json:"parent" parquet:"parent"` // the call whose dialog it continues, or -1
	Begun  string `json:"begun" parquet:"begun"`
	// Messages are those of the request, and Choices what was replied: one message, or one
	// for each choice that was asked for. Text is the prompt of a request without messages.
	Messages []Message `json:"messages" parquet:"messages"`
	Text     string    `json:"text,omitempty" parquet:"text"`
	Choices  []Message `json:"choices" parquet:"choices"`
	Finish   string    `json:"finish" parquet:"finish,dict"`

	Temperature float64 `json:"temperature" parquet:"temperature"`
	TopP        float64 `json:"top_p" parquet:"top_p"` // 0 is all
	// The token ids and their log-probabilities are empty unless they were asked for.
	PromptIDs     []int32   `json:"prompt_ids,omitempty" parquet:"prompt_ids"`
	CompletionIDs []int32   `json:"completion_ids,omitempty" parquet:"completion_ids"`
	Logprobs      []float32 `json:"logprobs,omitempty" parquet:"logprobs"`

	// Known is how many of Messages are those of the parent and its reply.
	Known int `json:"-" parquet:"-"`
	// Tokens is how many tokens the reply has, and Duration how long it took.
	Tokens   int           `json:"-" parquet:"-"`
	Duration time.Duration `json:"-" parquet:"-"`
}

// Message is a message of a dialog.
type Message struct {
	Role       string `json:"role" parquet:"role,dict"`
	Name       string `json:"name,omitempty" parquet:"name"`
	Content    string `json:"content" parquet:"content"`
	Reasoning  string `json:"reasoning,omitempty" parquet:"reasoning"`
	ToolCalls  string `json:"tool_calls,omitempty" parquet:"tool_calls"` // JSON
	ToolCallID string `json:"tool_call_id,omitempty" parquet:"tool_call_id"`
}

// Judgment is feedback.
type Judgment struct {
	ID            string   `json:"id" parquet:"id"`
	Reply         string   `json:"reply" parquet:"reply"` // empty is the whole conversation
	Reward        *float64 `json:"reward,omitempty" parquet:"reward,optional"`
	Thumb         string   `json:"thumb,omitempty" parquet:"thumb,dict"`
	CorrectedText *string  `json:"corrected_text,omitempty" parquet:"corrected_text,optional"`
	PreferredOver string   `json:"preferred_over,omitempty" parquet:"preferred_over"`
	Labels        []string `json:"labels" parquet:"labels"`
	User          string   `json:"user,omitempty" parquet:"user"`
	Comment       string   `json:"comment,omitempty" parquet:"comment"`
	Key           string   `json:"key,omitempty" parquet:"key,dict"`
	At            string   `json:"at" parquet:"at"`
	Step          int      `json:"step" parquet:"step"` // that learned from it; 0 is none
}

// Source is where conversations are read from.
type Source struct {
	Store Store
	// Tokens adds token ids and log-probabilities.
	Tokens bool
}

// Rows calls yield with each conversation that a query selects, the newest first. One that is
// removed meanwhile is left out.
func (s Source) Rows(ctx context.Context, q record.ConversationQuery, yield func(Row) error) error {
	all, err := s.Store.Conversations(ctx, q)
	if err != nil {
		return err
	}
	for _, c := range all {
		row, err := s.row(ctx, c.Conversation)
		if errors.Is(err, record.ErrForgotten) {
			continue
		}
		if err != nil {
			return err
		}
		if err := yield(row); err != nil {
			return err
		}
	}
	return nil
}

// Row reads one conversation.
func (s Source) Row(ctx context.Context, run string, number int) (Row, error) {
	c, err := s.Store.Conversation(ctx, run, number)
	if err != nil {
		return Row{}, err
	}
	return s.row(ctx, c)
}

func (s Source) row(ctx context.Context, c record.Conversation) (Row, error) {
	row := Row{
		Run: c.Run, Conversation: c.Address().String(), Name: c.Name, Key: c.Key, User: c.User, Policy: c.Policy, Version: c.Version,
		Candidate: c.Candidate, Redacted: c.Redacted, Begun: moment(c.Begun), Last: moment(c.Last), Replies: []Reply{}, Feedback: []Judgment{},
	}
	history, err := s.Store.Exchanges(ctx, c.Address())
	if err != nil {
		// A removal ends the attempt before it takes anything, and may have been killed then.
		if a, failure := s.Store.Attempt(ctx, c.Address()); failure == nil && a.Outcome != record.OutcomeRunning {
			err = fmt.Errorf("%w: %w: it is being removed", record.ErrForgotten, record.ErrNotFound)
		}
		return row, fmt.Errorf("read the texts of %s: %w", row.Conversation, err)
	}
	requests, dialogs := attribution.Requests(history), map[int][]dialog.Message{}
	for i, x := range history {
		reply := Reply{
			ID: x.ID, Call: x.Seq, Parent: x.Parent, Begun: moment(x.Started), Messages: []Message{}, Finish: x.Finish, Temperature: x.Temperature, TopP: x.TopP,
			Choices: messages(attribution.Replies(x.Response)), Tokens: len(x.Completion), Duration: x.Duration,
		}
		if r := requests[i]; r != nil {
			reply.Messages, reply.Text = messages(r.Dialog), r.Text
			reply.Known = dialog.Shared(dialogs[x.Parent], r.Dialog)
			dialogs[x.Seq] = r.Dialog
		}
		if s.Tokens {
			reply.PromptIDs, reply.CompletionIDs, reply.Logprobs = x.Prompt, x.Completion, x.Logprobs
		}
		row.Replies = append(row.Replies, reply)
	}
	feedback, err := s.Store.Feedback(ctx, c.Run, c.Number)
	if err != nil {
		return row, err
	}
	for _, f := range feedback {
		row.Feedback = append(row.Feedback, Judgment{
			ID: f.ID, Reply: f.CallID, Reward: f.Reward, Thumb: f.Thumb, CorrectedText: f.CorrectedText, PreferredOver: f.PreferredOver,
			Labels: append([]string{}, f.Labels...), User: f.User, Comment: f.Comment, Key: f.Key, At: moment(f.At), Step: f.Step,
		})
	}
	return row, nil
}

func messages(all []dialog.Message) []Message {
	out := make([]Message, len(all))
	for i, m := range all {
		out[i] = Message{Role: string(m.Role), Name: m.Name, Content: m.Content, Reasoning: m.Reasoning, ToolCallID: m.ToolCallID}
		if len(m.ToolCalls) > 0 {
			calls, _ := json.Marshal(m.ToolCalls) // texts alone, so there is no error
			out[i].ToolCalls = string(calls)
		}
	}
	return out
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
