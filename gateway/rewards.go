package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// reward records a reward that an agent gives its own attempt: {"name", "value",
// "call_id"}, or {"reward"} for the final one. A reward with a call_id is about that call,
// and never the attempt's final one.
func (g *Gateway) reward(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	return g.recordReward(w, r, c, body)
}

// recordReward records the reward in body, or that it is refused.
func (g *Gateway) recordReward(w http.ResponseWriter, r *http.Request, c *conversation.Conversation, body []byte) error {
	err := g.takeReward(w, r, c, body)
	if err == nil {
		return nil
	}
	if f := explain("", err); f.Status < http.StatusInternalServerError && f.Code != protocol.CodeFenced {
		if err := g.recordRewardRefusal(context.WithoutCancel(r.Context()), c, isFinal(body), f.Message); err != nil {
			return err
		}
	}
	return err
}

// recordRewardRefusal records that a reward was refused. The refusal may decide the
// outcome of the attempt, so it has to be on record before the agent knows of it.
func (g *Gateway) recordRewardRefusal(ctx context.Context, c *conversation.Conversation, final bool, message string) error {
	code := record.RewardRefused
	if final {
		code = record.FinalRewardRefused
	}
	return g.config.Journal.AddRefusal(ctx, record.Refusal{Address: c.Address(), Code: code, Message: message})
}

// isFinal reports whether a post gives the final reward. A post that can't be read may.
func isFinal(body []byte) bool {
	var posted struct {
		Name   any    `json:"name"`
		CallID string `json:"call_id"`
	}
	if json.Unmarshal(body, &posted) != nil {
		return true
	}
	return posted.CallID == "" && (posted.Name == nil || posted.Name == credit.Final)
}

func (g *Gateway) takeReward(w http.ResponseWriter, r *http.Request, c *conversation.Conversation, body []byte) error {
	terms := c.Begun().Terms
	reward, err := decodeReward(body, terms.RewardLimit)
	if err == nil && reward.CallID == "" && reward.Name != credit.Final && terms.Grades(reward.Name) {
		return &wire.Failure{
			Status: http.StatusForbidden, Code: "graded",
			Message: fmt.Sprintf("a grader gives the reward %q of this attempt (grader.rewards); rewards with another name, and those of one call, are taken", reward.Name),
		}
	}
	if terms.Graded && (err == nil && reward.Name == credit.Final && reward.CallID == "" || err != nil && isFinal(body)) {
		return &wire.Failure{
			Status: http.StatusForbidden, Code: "graded",
			Message: "a grader decides the final reward of this attempt; rewards with another name, and those of one call, are taken",
		}
	}
	if err != nil {
		return err
	}
	if reward.CallID != "" {
		switch known, err := c.Has(r.Context(), reward.CallID); {
		case err != nil:
			return err
		case !known:
			return wire.Invalid("call_id", "the attempt has recorded no call %q", reward.CallID)
		}
	}
	reward.Address = c.Address()
	switch err := g.config.Journal.PutReward(r.Context(), reward); {
	case errors.Is(err, record.ErrConflict):
		about := "the attempt"
		if reward.CallID != "" {
			about = "the call " + reward.CallID
		}
		return &wire.Failure{Status: http.StatusConflict, Code: "conflict", Message: fmt.Sprintf("the reward %q of %s was given before, with another value", reward.Name, about), Cause: err}
	case err != nil:
		return noticeFence(c, err)
	}
	return writeJSON(w, reward)
}

// eventOfReward finds the events that give rewards among those that are no JSON.
var eventOfReward = regexp.MustCompile(`"event_type"\s*:\s*"reward"`)

// event records a fact that an agent reports: {"name", "fields"}, or {"event_type",
// "data"} as Agent Lightning's agents write it, whose event "reward" is the final reward.
func (g *Gateway) event(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	var posted struct {
		Name   string          `json:"name"`
		Fields map[string]any  `json:"fields"`
		Type   string          `json:"event_type"`
		Data   json.RawMessage `json:"data"`
	}
	if err := wire.Unmarshal(body, &posted); err != nil {
		if eventOfReward.Match(body) { // for example {"event_type": "reward", "data": {"value": NaN}}
			return g.recordReward(w, r, c, body)
		}
		return err
	}
	if posted.Name == "" && posted.Type != "" {
		if posted.Type == "reward" {
			return g.recordReward(w, r, c, posted.Data)
		}
		posted.Name, posted.Fields = posted.Type, map[string]any{"data": posted.Data}
	}
	if posted.Name == "" {
		return wire.Invalid("name", "name is missing: what happened?")
	}
	event := record.Event{Address: c.Address(), Name: posted.Name, Fields: posted.Fields, At: g.config.Now().UTC()}
	if err := g.config.Journal.PutEvent(r.Context(), event); err != nil {
		return noticeFence(c, err)
	}
	return writeJSON(w, map[string]string{"status": "recorded"})
}

// noticeFence remembers that the attempt is over.
func noticeFence(c *conversation.Conversation, err error) error {
	if errors.Is(err, record.ErrFenced) {
		c.Fence()
	}
	return err
}

// decodeReward reads a reward whose magnitude is at most limit; 0 is no limit.
func decodeReward(body []byte, limit float64) (record.Reward, error) {
	var posted struct {
		Name   *string         `json:"name"`
		Value  json.RawMessage `json:"value"`
		Reward json.RawMessage `json:"reward"`
		CallID string          `json:"call_id"`
	}
	field, raw := "value", &posted.Value
	if err := wire.Unmarshal(body, &posted); err != nil {
		// Python's JSON encoder writes NaN and Infinity, which are not JSON.
		if !json.Valid(body) && (bytes.Contains(body, []byte("NaN")) || bytes.Contains(body, []byte("Infinity"))) {
			return record.Reward{}, wire.Invalid(field, "%s is not a finite number", field)
		}
		return record.Reward{}, err
	}
	if len(posted.Reward) > 0 {
		if len(posted.Value) > 0 {
			return record.Reward{}, wire.Invalid("reward", "give either value or reward")
		}
		field, raw = "reward", &posted.Reward
	}
	reward := record.Reward{Name: credit.Final, CallID: posted.CallID, Source: "agent"}
	if posted.Name != nil {
		reward.Name = *posted.Name
	}
	if reward.Name == "" {
		return record.Reward{}, wire.Invalid("name", "name is empty")
	}
	if len(*raw) == 0 || string(*raw) == "null" {
		return record.Reward{}, wire.Invalid(field, "%s is missing", field)
	}
	// Only JSON numbers pass: a string of digits is more likely a mistake.
	if c := (*raw)[0]; c != '-' && (c < '0' || c > '9') {
		return record.Reward{}, wire.Invalid(field, "%s is %.40s: want a number", field, *raw)
	}
	var err error
	if reward.Value, err = strconv.ParseFloat(string(*raw), 64); err != nil {
		return record.Reward{}, wire.Invalid(field, "%s is %.40s: want a finite number", field, *raw)
	}
	if limit > 0 && math.Abs(reward.Value) > limit {
		return record.Reward{}, wire.Invalid(field, "%s is %g: this run takes rewards from -%g to %g (grader.limit)", field, reward.Value, limit, limit)
	}
	return reward, nil
}
