package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Feedback keeps what people say of recorded replies.
type Feedback interface {
	// ConversationWithReply finds the conversation of a recorded reply by its id.
	ConversationWithReply(ctx context.Context, id string) (record.Conversation, error)
	// ServedReply finds a recorded reply by its id, which is random.
	ServedReply(ctx context.Context, id string) (record.Conversation, record.Call, error)
	// Conversation returns a conversation. If it was removed, the error wraps
	// record.ErrForgotten.
	Conversation(ctx context.Context, run string, number int) (record.Conversation, error)
	// ConversationsNamed returns the conversations that the client with a key calls by a
	// name, the newest first.
	ConversationsNamed(ctx context.Context, run, key, name string) ([]record.Conversation, error)
	// PutFeedback records feedback once by its id.
	PutFeedback(ctx context.Context, f record.Feedback) (stored record.Feedback, created bool, err error)
	// HashUser returns the keyed hash of a user.
	HashUser(ctx context.Context, user string) (string, error)
}

// Bounds of feedback.
const (
	maxFeedbackBody = 1 << 20
	maxCorrected    = 256 << 10 // bytes, as all that follow
	maxComment      = 16 << 10
	maxLabel        = 64
	maxLabels       = 32
	maxReply        = 128
)

// feedbackID is what an id of feedback may be. Without a slash, ids of clients are kept apart
// by the names of their keys.
var feedbackID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// postedFeedback is the body of a request with feedback. Its keys are a public contract.
type postedFeedback struct {
	ID            string   `json:"id"`
	Reply         string   `json:"reply"`
	Conversation  string   `json:"conversation"`
	Model         string   `json:"model"`
	Reward        *float64 `json:"reward"`
	Thumb         string   `json:"thumb"`
	CorrectedText *string  `json:"corrected_text"`
	PreferredOver string   `json:"preferred_over"`
	Labels        []string `json:"labels"`
	User          string   `json:"user"`
	Comment       string   `json:"comment"`
}

// feedbackFields are the keys of postedFeedback.
var feedbackFields = []string{"id", "reply", "conversation", "model", "reward", "thumb", "corrected_text", "preferred_over", "labels", "user", "comment"}

// feedbackReply is the answer to feedback. Its keys are a public contract.
type feedbackReply struct {
	ID           string `json:"id"`
	Run          string `json:"run"`
	Conversation string `json:"conversation"` // its address
	Reply        string `json:"reply,omitempty"`
	// Status is "recorded", or "known" if the same was recorded before.
	Status string `json:"status"`
}

// feedback records what somebody says of a recorded reply or conversation.
func (g *Gateway) feedback(w http.ResponseWriter, r *http.Request) error {
	if g.config.Feedback == nil {
		return unknownURL(nil, "no reply is recorded here, so there is none to judge")
	}
	body, err := g.readBodyWithin(w, r, min(maxFeedbackBody, g.config.BodyBytes))
	if err != nil {
		return err
	}
	posted, err := decodeFeedback(body, r.Header)
	if err != nil {
		return err
	}
	stored, created, err := g.takeFeedback(r.Context(), clientOf(r.Context()), posted)
	if err != nil {
		return err
	}
	reply := feedbackReply{posted.ID, stored.Run, record.ConversationAddress(stored.Run, stored.Conversation).String(), stored.CallID, "recorded"}
	status := http.StatusCreated
	if !created {
		reply.Status, status = "known", http.StatusOK
	}
	encoded, err := json.Marshal(reply)
	if err != nil {
		return fault(fmt.Errorf("encode the answer to feedback %s: %w", posted.ID, err))
	}
	_ = write(w, status, encoded) // an error means that the client has left
	return nil
}

// decodeFeedback reads feedback and checks each field. If it has no id, it gets one.
func decodeFeedback(body []byte, header http.Header) (posted postedFeedback, err error) {
	if err := wire.Unmarshal(body, &posted); err != nil {
		return posted, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return posted, wire.Invalid("", "the request's body is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(feedbackFields, name) {
			return posted, wire.Invalid(name, "%.64q is no field of feedback: give %s", name, strings.Join(feedbackFields, ", "))
		}
	}
	if key := header.Get("Idempotency-Key"); key != "" {
		if posted.ID != "" && posted.ID != key {
			return posted, wire.Invalid("id", "id and the header Idempotency-Key are different: give one of them")
		}
		posted.ID = key
	}
	if user := header.Get(protocol.UserHeader); user != "" {
		posted.User = user
	}
	if posted.ID == "" {
		posted.ID = "fb-" + strings.ToLower(rand.Text())
	}
	return posted, posted.check()
}

// check returns an error that names the field at fault.
func (p postedFeedback) check() error {
	if !feedbackID.MatchString(p.ID) {
		return wire.Invalid("id", "id (or the header Idempotency-Key) has to be 1 to 128 letters, digits, '.', '_', ':' and '-'")
	}
	for _, bound := range []struct {
		field, text string
		bytes       int
	}{
		{"reply", p.Reply, maxReply}, {"preferred_over", p.PreferredOver, maxReply}, {"conversation", p.Conversation, 512}, {"model", p.Model, 256},
		{"user", p.User, maxUser}, {"comment", p.Comment, maxComment},
	} {
		if len(bound.text) > bound.bytes {
			return wire.Invalid(bound.field, "%s has %d bytes: give at most %d", bound.field, len(bound.text), bound.bytes)
		}
	}
	if p.CorrectedText != nil && len(*p.CorrectedText) > maxCorrected {
		return wire.Invalid("corrected_text", "corrected_text has %d bytes: give at most %d", len(*p.CorrectedText), maxCorrected)
	}
	if len(p.Labels) > maxLabels {
		return wire.Invalid("labels", "there are %d labels: give at most %d", len(p.Labels), maxLabels)
	}
	for i, label := range p.Labels {
		if label == "" || len(label) > maxLabel || !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl) {
			return wire.Invalid("labels", "labels[%d] has to be 1 to %d bytes without control characters", i, maxLabel)
		}
		if slices.Contains(p.Labels[:i], label) {
			return wire.Invalid("labels", "labels[%d] is given twice", i)
		}
	}
	return p.checkJudgment()
}

// checkJudgment returns an error if it is not clear what is judged, and how.
func (p postedFeedback) checkJudgment() error {
	switch {
	case p.Reply == "" && p.Conversation == "":
		return wire.Invalid("reply", "give the id of a reply as reply, or a conversation")
	case p.Conversation == "" && p.Model != "":
		return wire.Invalid("model", "model says whose conversation of a name is meant: give conversation, too")
	case p.Reward != nil && !(-1 <= *p.Reward && *p.Reward <= 1):
		return wire.Invalid("reward", "reward is %g: give a number from -1 to 1", *p.Reward)
	case p.Thumb != "" && p.Thumb != record.ThumbUp && p.Thumb != record.ThumbDown:
		return wire.Invalid("thumb", "thumb is %.20q: give %q or %q", p.Thumb, record.ThumbUp, record.ThumbDown)
	case p.Reward != nil && (p.Thumb == record.ThumbUp && *p.Reward < 0 || p.Thumb == record.ThumbDown && *p.Reward > 0):
		return wire.Invalid("thumb", "thumb is %q and reward is %g: they contradict each other", p.Thumb, *p.Reward)
	case p.CorrectedText != nil && *p.CorrectedText == "":
		return wire.Invalid("corrected_text", "corrected_text is empty: give what the reply should have said, or leave it out")
	case p.CorrectedText != nil && p.Reply == "":
		return wire.Invalid("corrected_text", "corrected_text is what one reply should have said: give the reply's id as reply")
	case p.PreferredOver != "" && p.Reply == "":
		return wire.Invalid("preferred_over", "preferred_over is a reply that is worse than another: give the id of the better one as reply")
	case p.Reward == nil && p.Thumb == "" && p.CorrectedText == nil && p.PreferredOver == "" && len(p.Labels) == 0 && p.Comment == "":
		return wire.Invalid("reward", "it says nothing: give reward, thumb, corrected_text, preferred_over, labels or comment")
	}
	return nil
}

// takeFeedback records feedback of a client.
func (g *Gateway) takeFeedback(ctx context.Context, c client, p postedFeedback) (stored record.Feedback, created bool, err error) {
	if p.Reply, err = chosen("reply", p.Reply); err != nil {
		return stored, false, err
	}
	if p.PreferredOver, err = chosen("preferred_over", p.PreferredOver); err != nil {
		return stored, false, err
	}
	if p.PreferredOver != "" && p.PreferredOver == p.Reply {
		return stored, false, wire.Invalid("preferred_over", "preferred_over is the reply itself")
	}
	conversation, err := g.judged(ctx, c, p)
	if err != nil {
		return stored, false, err
	}
	user, err := g.config.Feedback.HashUser(ctx, p.User)
	if err != nil {
		return stored, false, err
	}
	redacted, err := g.redactFeedback(ctx, conversation, &p)
	if err != nil {
		return stored, false, err
	}
	id := p.ID
	if c.key.Name != "" {
		id = c.key.Name + "/" + id // two clients may use the same ids
	}
	stored, created, err = g.config.Feedback.PutFeedback(ctx, record.Feedback{
		Run: conversation.Run, ID: id, Conversation: conversation.Number, CallID: p.Reply, Reward: p.Reward, Thumb: p.Thumb, CorrectedText: p.CorrectedText,
		PreferredOver: p.PreferredOver, Labels: p.Labels, User: user, Comment: p.Comment, Redacted: redacted, Key: c.key.Name, At: g.config.Now().UTC(),
	})
	switch {
	case errors.Is(err, record.ErrContradiction):
		return stored, false, &wire.Failure{Status: http.StatusConflict, Code: "contradictory_feedback", Param: "preferred_over", Message: "the same user said before that the other reply is better", Cause: err}
	case errors.Is(err, record.ErrTooMuchFeedback):
		return stored, false, &wire.Failure{Status: http.StatusConflict, Code: "too_much_feedback", Message: fmt.Sprintf("the conversation has %d pieces of feedback, and takes no more", record.MaxFeedback), Cause: err}
	case errors.Is(err, record.ErrConflict):
		return stored, false, &wire.Failure{Status: http.StatusConflict, Code: "conflict", Param: "id", Message: fmt.Sprintf("other feedback was given under the id %q: give another id", p.ID), Cause: err}
	}
	return stored, created, absent(err, p)
}

// chosen returns the id of the call that a field names: the id of a reply, or with "#" and a
// number behind it, one of the choices of a reply, counted from 0.
func chosen(field, name string) (id string, err error) {
	reply, number, several := strings.Cut(name, "#")
	if !several {
		return name, nil
	}
	choice, err := strconv.Atoi(number)
	if err != nil || choice < 0 || strconv.Itoa(choice) != number {
		return "", wire.Invalid(field, "%s is %.64q: give the id of a reply, and for another choice than the first one # and its index, as in %s#1", field, name, "ID")
	}
	id, ok := conversation.ChoiceID(reply, choice)
	if !ok {
		return "", noReplyNamed(field, name)
	}
	return id, nil
}

// redactFeedback has the texts of feedback rewritten by the redactor of the conversation's
// run, if it has one, and reports whether the corrected text was changed. Without its answer
// nothing is recorded.
func (g *Gateway) redactFeedback(ctx context.Context, of record.Conversation, p *postedFeedback) (changed bool, err error) {
	if p.Comment == "" && p.CorrectedText == nil {
		return false, nil
	}
	served, err := g.config.Versions.Resolve(ctx, model.VersionID{Run: of.Run, Policy: of.Policy, Number: of.Version}.String())
	if err != nil || len(served.Redactor) == 0 {
		return false, err
	}
	rewrite := func(text string) (string, error) {
		if g.config.Redact == nil {
			return "", fault(fmt.Errorf("run %s has a redactor, and this process runs none", of.Run))
		}
		// A client that leaves must not end the program, which others use.
		out, err := g.config.Redact(context.WithoutCancel(ctx), served.Redactor, served.RedactorTimeout, text)
		if err != nil {
			return "", fault(fmt.Errorf("redact feedback: %w", err))
		}
		return out, nil
	}
	if p.Comment != "" {
		if p.Comment, err = rewrite(p.Comment); err != nil {
			return false, err
		}
	}
	if p.CorrectedText == nil {
		return false, nil
	}
	text, err := rewrite(*p.CorrectedText)
	changed = text != *p.CorrectedText
	p.CorrectedText = &text
	return changed, err
}

// absent replaces the error for what is not on record, or no longer.
func absent(err error, p postedFeedback) error {
	switch {
	case errors.Is(err, record.ErrForgotten):
		return &wire.Failure{Status: http.StatusGone, Code: "removed", Message: "the conversation was removed, and what was said of it, too", Cause: err}
	case errors.Is(err, record.ErrNotFound):
		return noReply(p)
	}
	return err
}

// noReply is the failure for a reply or a conversation that is not on record, and also for
// those of other clients, so that nobody learns which there are.
func noReply(p postedFeedback) *wire.Failure {
	if p.Reply == "" {
		return &wire.Failure{
			Status: http.StatusNotFound, Code: "conversation_not_found", Param: "conversation",
			Message: fmt.Sprintf("no recorded conversation %.64q is yours: give its address, or its name and model, the run; only what is recorded can be judged (traffic.record)", p.Conversation),
		}
	}
	return noReplyNamed("reply", p.Reply)
}

func noReplyNamed(field, id string) *wire.Failure {
	return &wire.Failure{
		Status: http.StatusNotFound, Code: "reply_not_found", Param: field,
		Message: fmt.Sprintf("no recorded reply %.64q is yours: give the id that came with the reply; it is not there if it was not recorded (traffic.record), or was removed since", id),
	}
}

// judged returns the conversation that feedback is about.
func (g *Gateway) judged(ctx context.Context, c client, p postedFeedback) (conversation record.Conversation, err error) {
	if p.Conversation != "" {
		if conversation, err = g.judgedConversation(ctx, c, p); err != nil || p.Reply == "" {
			return conversation, err
		}
	}
	of, err := g.config.Feedback.ConversationWithReply(ctx, p.Reply)
	if err == nil && (!c.judges(of) || p.Conversation != "" && of.Address() != conversation.Address()) {
		err = record.ErrNotFound
	}
	if errors.Is(err, record.ErrNotFound) {
		return conversation, noReply(p)
	}
	if err == nil && p.PreferredOver != "" {
		err = g.checkPair(ctx, c, p)
	}
	return of, err
}

// checkPair returns an error if the reply that is judged can't be compared with the one that it
// is preferred over.
func (g *Gateway) checkPair(ctx context.Context, c client, p postedFeedback) error {
	conversation, worse, err := g.config.Feedback.ServedReply(ctx, p.PreferredOver)
	if err == nil && !c.judges(conversation) {
		err = record.ErrNotFound
	}
	if errors.Is(err, record.ErrNotFound) {
		return noReplyNamed("preferred_over", p.PreferredOver)
	}
	if err != nil {
		return err
	}
	_, better, err := g.config.Feedback.ServedReply(ctx, p.Reply)
	if errors.Is(err, record.ErrNotFound) { // it was removed meanwhile
		return noReply(p)
	}
	if err != nil {
		return err
	}
	if !sameRequest(better, worse) {
		return wire.Invalid("preferred_over", "preferred_over answers another request: only replies to the same one can be compared")
	}
	return nil
}

// sameRequest reports whether two replies answer the same request: one can then be better than
// the other.
func sameRequest(a, b record.Call) bool {
	return a.Run == b.Run && a.Policy == b.Policy && (a.Key == b.Key || len(a.Prompt) > 0 && slices.Equal(a.Prompt, b.Prompt))
}

// judgedConversation returns the conversation that feedback names by its address, or by its
// name and the run.
func (g *Gateway) judgedConversation(ctx context.Context, c client, p postedFeedback) (conversation record.Conversation, err error) {
	if address, err := record.ParseAddress(strings.Trim(p.Conversation, "/")); err == nil && address.Kind == record.Served {
		conversation, err = g.config.Feedback.Conversation(ctx, address.Run, address.Task)
		if errors.Is(err, record.ErrForgotten) && !c.has(record.ScopeFeedbackAny) {
			err = record.ErrNotFound // nobody learns whose conversations there were
		}
		if err != nil {
			return conversation, absent(err, p)
		}
		if conversation.Address() != address || !c.judges(conversation) {
			return conversation, noReply(postedFeedback{Conversation: p.Conversation})
		}
		return conversation, nil
	}
	if p.Model == "" {
		return conversation, wire.Invalid("model", "conversation %.64q is a name: give the run, or the version, as model", p.Conversation)
	}
	run, version, pinned := strings.Cut(p.Model, "@")
	run, _, _ = strings.Cut(run, ":")
	all, err := g.config.Feedback.ConversationsNamed(ctx, run, c.key.Name, p.Conversation)
	if err != nil {
		return conversation, err
	}
	all = slices.DeleteFunc(all, func(one record.Conversation) bool {
		return pinned && version != promotedName && version != fmt.Sprint(one.Version)
	})
	return g.ofUser(ctx, all, p)
}

// ofUser returns the newest of the conversations of one name. Each user of a client may have
// one of that name.
func (g *Gateway) ofUser(ctx context.Context, all []record.Conversation, p postedFeedback) (conversation record.Conversation, err error) {
	user, err := g.config.Feedback.HashUser(ctx, p.User)
	if err != nil {
		return conversation, err
	}
	if p.User != "" {
		// A conversation whose user nobody named may be this user's.
		all = slices.DeleteFunc(all, func(one record.Conversation) bool { return one.User != user && one.User != "" })
		if i := slices.IndexFunc(all, func(one record.Conversation) bool { return one.User == user }); i >= 0 {
			return all[i], nil
		}
	}
	switch {
	case len(all) == 0:
		return conversation, noReply(postedFeedback{Conversation: p.Conversation})
	case slices.ContainsFunc(all, func(one record.Conversation) bool { return one.User != all[0].User }):
		return conversation, &wire.Failure{
			Status: http.StatusConflict, Code: "ambiguous_conversation", Param: "conversation",
			Message: "conversations of several users have this name: give the user, or the conversation's address",
		}
	}
	return all[0], nil
}

// promotedName stands for the promoted version in the name of a model.
const promotedName = "promoted"
