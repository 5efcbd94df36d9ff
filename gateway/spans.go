package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// exports adds a handler of exports, whose errors have OTLP's shape.
func (g *Gateway) exports(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		err := handle(w, r)
		if err == nil {
			return
		}
		f := explain("", err)
		g.logFault(r, f, err)
		encoding, _ := otlp.EncodingOf(r.Header.Get("Content-Type"))
		if f.Status >= http.StatusInternalServerError {
			w.Header().Set(protocol.FaultHeader, protocol.CodeInfrastructure)
		}
		_ = writeExport(w, f.Status, encoding, encoding.Failure(codeOf(f.Status), f.Message))
	})
}

func writeExport(w http.ResponseWriter, status int, encoding otlp.Encoding, body []byte) error {
	w.Header().Set("Content-Type", string(encoding))
	w.WriteHeader(status)
	return writeFlushed(w, body)
}

// spans records a trace export of the attempt in the path.
func (g *Gateway) spans(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	encoding, batch, err := g.readExport(w, r)
	if err != nil {
		return err
	}
	rejected, why, err := g.recordSpans(r.Context(), c, batch)
	if err != nil {
		return err
	}
	return writeExport(w, http.StatusOK, encoding, encoding.Reply(rejected, why))
}

// spansOfNamed records a trace export that names its attempt itself. One that names none may
// judge recorded replies.
func (g *Gateway) spansOfNamed(w http.ResponseWriter, r *http.Request) error {
	encoding, batch, err := g.readExport(w, r)
	if err != nil {
		return err
	}
	if batch.Rollout == "" && len(batch.Evaluations) > 0 && g.config.Feedback != nil {
		return g.judging(g.spanEvaluations(encoding, batch))(w, r)
	}
	rejected, why, err := g.RecordSpans(r.Context(), protocol.PresentedKey(r), batch)
	if err != nil {
		return err
	}
	return writeExport(w, http.StatusOK, encoding, encoding.Reply(rejected, why))
}

// encodingOf returns how an export is written.
func encodingOf(r *http.Request) (otlp.Encoding, error) {
	encoding, err := otlp.EncodingOf(r.Header.Get("Content-Type"))
	if err != nil {
		return encoding, &wire.Failure{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: err.Error()}
	}
	return encoding, nil
}

func (g *Gateway) readExport(w http.ResponseWriter, r *http.Request) (otlp.Encoding, otlp.Batch, error) {
	encoding, err := encodingOf(r)
	if err != nil {
		return encoding, otlp.Batch{}, err
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return encoding, otlp.Batch{}, err
	}
	batch, err := encoding.Decode(body)
	if err != nil {
		return encoding, otlp.Batch{}, &wire.Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: err.Error()}
	}
	return encoding, batch, nil
}

// RecordSpans records an export that names its attempt itself, if key is the attempt's.
// Exports by gRPC use it. It returns how many rewards were refused, and why.
func (g *Gateway) RecordSpans(ctx context.Context, key string, batch otlp.Batch) (rejected int, why string, err error) {
	address, err := record.ParseAddress(strings.Trim(batch.Rollout, "/"))
	if err != nil {
		return 0, "", &wire.Failure{
			Status: http.StatusNotFound, Code: "unknown_rollout", Cause: err,
			Message: fmt.Sprintf("the export names no attempt: send it below the attempt's base URL, or with the resource attribute %s", otlp.RolloutAttribute),
		}
	}
	if key == "" {
		return 0, "", missingKey()
	}
	c := g.conversations.enter(address, g.config.Now())
	defer func() { g.conversations.leave(address, g.config.Now(), !c.Exists()) }()
	if err := c.Enter(ctx, key); err != nil {
		return 0, "", err
	}
	g.conversations.weigh(address, g.config.Now())
	return g.recordSpans(ctx, c, batch)
}

// lateSpans is for how long after the end of an attempt spans are accepted with its key,
// because exporters send late.
const lateSpans = 15 * time.Minute

// recordSpans records spans and the rewards in them. Spans are accepted even some time after
// the end of the attempt; rewards are not.
func (g *Gateway) recordSpans(ctx context.Context, c *conversation.Conversation, batch otlp.Batch) (rejected int, why string, err error) {
	end, err := c.End(ctx)
	if err != nil {
		return 0, "", err
	}
	if !end.IsZero() && g.config.Now().Sub(end) > lateSpans {
		return 0, "", fmt.Errorf("spans of attempt %s: %w", c.Address(), record.ErrFenced)
	}
	if len(batch.Spans) > 0 {
		if err := g.config.Journal.PutSpans(ctx, c.Address(), batch.Spans); err != nil {
			return 0, "", err
		}
	}
	for _, reward := range batch.Rewards {
		refusal, err := g.recordSpanReward(ctx, c, &reward)
		if err != nil {
			return 0, "", err
		}
		if refusal != "" {
			final := reward.Name == credit.Final && reward.CallID == ""
			if err := g.recordRewardRefusal(ctx, c, final, refusal); err != nil {
				return 0, "", err
			}
			why = fmt.Sprintf("reward %q: %s", reward.Name, refusal) // its span is taken
		}
	}
	return rejected, why, nil
}

// recordSpanReward gives a span's reward to the attempt by the rules for posted rewards.
// If the exporter could do nothing about a problem, it returns a refusal and no error. It
// takes away the id of a call that is not on record.
func (g *Gateway) recordSpanReward(ctx context.Context, c *conversation.Conversation, reward *otlp.Reward) (refusal string, err error) {
	terms := c.Begun().Terms
	switch {
	case reward.Refusal != "":
		return reward.Refusal, nil
	case terms.RewardLimit > 0 && math.Abs(reward.Value) > terms.RewardLimit:
		return fmt.Sprintf("%g is beyond the largest reward of this run, %g", reward.Value, terms.RewardLimit), nil
	}
	if reward.CallID != "" {
		known, err := c.Has(ctx, reward.CallID)
		if err != nil && !errors.Is(err, record.ErrFenced) && explain("", err).Status >= http.StatusInternalServerError {
			return "", err
		}
		switch {
		case known:
		case !reward.Emitted.IsZero(): // a link, which somebody has set
			return fmt.Sprintf("the attempt has recorded no call %q", reward.CallID), nil
		default:
			reward.CallID = ""
		}
	}
	if terms.Graded && reward.Name == credit.Final && reward.CallID == "" {
		return "a grader decides the final reward of this attempt", nil
	}
	if reward.CallID == "" && terms.Grades(reward.Name) {
		return fmt.Sprintf("a grader gives the reward %q of this attempt", reward.Name), nil
	}
	reward.Address = c.Address()
	err = g.config.Journal.PutReward(ctx, reward.Reward)
	switch {
	case errors.Is(err, record.ErrConflict), errors.Is(err, record.ErrFenced):
		return err.Error(), nil
	}
	return "", err
}

// SpanCode returns the gRPC code for an error of RecordSpans.
func SpanCode(err error) codes.Code { return codeOf(explain("", err).Status) }

func codeOf(status int) codes.Code {
	switch status {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	}
	if status >= http.StatusInternalServerError {
		return codes.Unavailable // exporters ask again
	}
	return codes.InvalidArgument
}
