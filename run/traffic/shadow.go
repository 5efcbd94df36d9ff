package traffic

import (
	"context"
	"errors"
	"slices"

	"github.com/fulgurite/fulgurite/record"
)

// Pair is a recorded reply, and what a candidate replied to the same in the shadow. Its keys are
// a public contract.
type Pair struct {
	Run          string `json:"run"`
	Conversation string `json:"conversation"` // its address
	Version      int    `json:"version"`      // that answered the client
	// Reply is what the client was told, and what it replied to.
	Reply   Reply   `json:"reply"`
	Tokens  int     `json:"tokens"` // of the reply
	Seconds float64 `json:"seconds"`
	Shadow  Shadow  `json:"shadow"`
}

// Shadow is what a candidate replied, and nobody was shown.
type Shadow struct {
	Candidate int     `json:"candidate"`
	Text      string  `json:"text"` // each call of a tool is a line of JSON in it
	Finish    string  `json:"finish"`
	Tokens    int     `json:"tokens"`
	Seconds   float64 `json:"seconds"`
	Error     string  `json:"error,omitempty"` // why there is no reply
	At        string  `json:"at"`
}

// ShadowStore is the part of a store that pairs are read from.
type ShadowStore interface {
	Store
	ShadowReplies(ctx context.Context, q record.ShadowQuery) ([]record.ShadowReply, error)
}

// Pairs returns the replies in the shadow that a query selects, each with the reply that the
// client got. A conversation that is removed meanwhile is left out.
func Pairs(ctx context.Context, s ShadowStore, q record.ShadowQuery) ([]Pair, error) {
	all, err := s.ShadowReplies(ctx, q)
	if err != nil {
		return nil, err
	}
	out := []Pair{}
	var row Row
	for i, r := range all {
		if i == 0 || all[i-1].Conversation != r.Conversation {
			row, err = Source{Store: s}.Row(ctx, r.Run, r.Conversation)
			if err != nil && !errors.Is(err, record.ErrNotFound) {
				return nil, err
			}
		}
		k := slices.IndexFunc(row.Replies, func(one Reply) bool { return one.ID == r.CallID })
		if k < 0 {
			continue
		}
		reply := row.Replies[k]
		out = append(out, Pair{
			Run: row.Run, Conversation: row.Conversation, Version: row.Version, Reply: reply, Tokens: reply.Tokens, Seconds: reply.Duration.Seconds(),
			Shadow: Shadow{r.Candidate, r.Reply, r.Finish, r.Tokens, r.Duration.Seconds(), r.Error, moment(r.At)},
		})
	}
	return out, nil
}
