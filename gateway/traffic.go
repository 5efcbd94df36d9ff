package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Conversations records which conversations clients have with served versions. Its errors
// wrap record.ErrNotFound and record.ErrForgotten; any other is taken for a fault of ours.
type Conversations interface {
	// BeginConversation begins a conversation and the attempt that has its calls, unless the
	// client has one of that name.
	BeginConversation(ctx context.Context, c record.Conversation, terms record.Terms) (out record.Conversation, created bool, err error)
	// DiscardConversation removes a conversation that has no calls.
	DiscardConversation(ctx context.Context, run string, number int) (removed bool, err error)
	Conversation(ctx context.Context, run string, number int) (record.Conversation, error)
	// NamedConversation finds what BeginConversation would return without beginning one.
	NamedConversation(ctx context.Context, c record.Conversation) (record.Conversation, error)
	// ConversationOfReply finds a conversation by the digest of its messages up to and with a
	// reply, or by that of its opening.
	ConversationOfReply(ctx context.Context, run, client, digest string) (record.Conversation, error)
	// ConversationWithReply finds the conversation that has a reply with an id.
	ConversationWithReply(ctx context.Context, id string) (record.Conversation, error)
	// HashUser returns what is recorded of a user's name.
	HashUser(ctx context.Context, user string) (string, error)
}

// Experiments gives a share of the conversations of a run to a candidate.
type Experiments interface {
	// Candidate returns the version that answers a new conversation of a unit, which is a
	// user if the client names one. It returns the same for the same unit as long as the
	// experiment lasts. experiment is its number, 0 if there is none; candidate says that the
	// version is the candidate's, and otherwise it is the control's. A conversation that another
	// version answers is no part of the experiment.
	Candidate(ctx context.Context, run, policy, unit string) (version, experiment int, candidate bool, err error)
}

// records reports whether a request for a version is recorded: whether its run records
// conversations, and its client consents as far as the run needs it. A client that does not
// consent is never recorded.
func (g *Gateway) records(r *http.Request, served model.Served) (bool, error) {
	if g.config.Conversations == nil || served.Recording == model.RecordNothing {
		return false, nil
	}
	const name = protocol.ConsentHeader
	switch value := r.Header.Get(name); value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "":
		return served.Recording == model.RecordAll || clientOf(r.Context()).key.HasScope(record.ScopeConsent), nil
	default:
		return false, wire.Invalid(name, "the header %s is %q: send %q or %q, or leave the header out", name, value, "true", "false")
	}
}

// errConversation is wrapped by errors of what finds and begins conversations.
var errConversation = errors.New("the conversation can't be recorded")

// serveRecorded answers a request as the next one of a conversation.
func (g *Gateway) serveRecorded(w http.ResponseWriter, r *http.Request, served model.Served, request *conversation.Request, decode model.DecodeRequest) error {
	// The user is hashed once, because the hash replaces the name in the body. A conversation
	// that was removed since it was found accepts no calls: the request then begins another.
	user, err := g.hashUser(r, request.Request)
	if err == nil && served.MaxCalls > 0 && request.N > served.MaxCalls && !continues(r, request) {
		err = &conversation.LimitError{Calls: served.MaxCalls} // a new conversation can't have them either
	} else if err == nil {
		err = g.serveOnce(w, r, served, request, user, false)
	}
	if errors.Is(err, record.ErrFenced) && !replyBegun(w) {
		err = g.serveOnce(w, r, served, request, user, false)
	}
	// A full conversation goes on as another one, unless the client has said which.
	if full(err) && !replyBegun(w) && !continues(r, request) && request.N <= served.MaxCalls {
		err = g.serveOnce(w, r, served, request, user, true)
	}
	if full(err) {
		return conversationFull(served, request, err)
	}
	var refusal *wire.Failure
	switch {
	case err == nil || errors.As(err, &refusal):
		return err
	case errors.Is(err, errConversation) && served.DeliverUnrecorded && request.Previous == "" && len(request.References) == 0 && r.Context().Err() == nil:
		g.config.Metrics.Served(false)
		g.logUnrecorded(served.VersionID.String(), err)
		return g.serveUnrecorded(w, r, served, request, decode)
	case errors.Is(err, errBrokenOff):
		return err
	case errors.Is(err, errConversation), errors.Is(err, record.ErrFenced), errors.Is(err, record.ErrNotFound), errors.Is(err, record.ErrConflict):
		return fault(err)
	}
	return err
}

// continues reports whether a client says which conversation its request belongs to.
func continues(r *http.Request, request *conversation.Request) bool {
	return r.Header.Get(protocol.ConversationHeader) != "" || request.Previous != "" || len(request.References) > 0
}

// replyBegun reports whether a part of the reply was written.
func replyBegun(w http.ResponseWriter) bool {
	tracked, ok := w.(*trackedWriter)
	return !ok || tracked.begun
}

// full reports whether an error says that a conversation has all of its calls.
func full(err error) bool {
	var limit *conversation.LimitError
	return errors.As(err, &limit) && limit.Calls > 0
}

// conversationFull refuses a request beyond the bound on calls of its conversation.
func conversationFull(served model.Served, request *conversation.Request, cause error) *wire.Failure {
	f := &wire.Failure{
		Status: http.StatusConflict, Code: "conversation_full", Param: protocol.ConversationHeader, Cause: cause,
		Message: fmt.Sprintf("the conversation has its %d calls (traffic.max_calls of run %s) with this request: begin another one under another name, or send the whole dialog without a name", served.MaxCalls, served.Run),
	}
	if request.N > served.MaxCalls {
		f.Param = "n"
		f.Message = fmt.Sprintf("n is %d, and a conversation has at most %d calls (traffic.max_calls of run %s): ask for fewer replies", request.N, served.MaxCalls, served.Run)
	}
	return f
}

// serveOnce answers a request within the conversation that it belongs to now, or within a new
// one if fresh is set.
func (g *Gateway) serveOnce(w http.ResponseWriter, r *http.Request, served model.Served, request *conversation.Request, user string, fresh bool) (err error) {
	of, terms, created, err := g.conversationOf(r, served, request, user, fresh)
	if err != nil {
		return err
	}
	address := of.Address()
	c := g.served.enter(address, g.config.Now())
	defer func() { g.served.leave(address, g.config.Now(), !c.Exists()) }()
	if created {
		defer func() {
			if err != nil && !replyBegun(w) {
				g.discard(w, r, of, c)
			}
		}()
	}
	if created {
		err = c.EnterNew(r.Context(), of.Begun, terms)
	} else {
		err = c.EnterServed(r.Context(), of.Calls)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errConversation, err)
	}
	g.served.weigh(address, g.config.Now())
	if terms.Prompts != c.Begun().Terms.Prompts {
		served.PromptsNumber = -1 // the promoted prompts have changed since it began
	}
	if err := g.describe(w, of, served, request, c.Begun().Terms); err != nil {
		return err
	}
	return g.answer(w, r, request, c.Calls(request))
}

// discardTimeout is how long a refusal waits until the conversation that it would have begun
// is removed.
const discardTimeout = 2 * time.Second

// discard removes a conversation whose first request was refused before anything was recorded.
// One with a name stays, because another gateway may be answering a request of that name now.
// What stays empty, also because this process was killed, retention removes later.
func (g *Gateway) discard(w http.ResponseWriter, r *http.Request, of record.Conversation, c *conversation.Conversation) {
	if of.Name != "" || !c.Unused() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), discardTimeout)
	defer cancel()
	removed, err := g.config.Conversations.DiscardConversation(ctx, of.Run, of.Number)
	switch {
	case err != nil:
		g.config.Log.Warn("empty conversation not removed", zap.Stringer("conversation", of.Address()), zap.Error(err))
	case removed:
		c.Fence()
		w.Header().Del(protocol.ConversationHeader)
	}
}

// describe sets the headers that say what answers, and in which conversation.
func (g *Gateway) describe(w http.ResponseWriter, of record.Conversation, served model.Served, request *conversation.Request, terms record.Terms) error {
	h := w.Header()
	h.Set(protocol.ConversationHeader, cmp.Or(of.Name, of.Address().String()))
	h.Set(protocol.VersionHeader, model.VersionID{Run: of.Run, Policy: of.Policy, Number: of.Version}.String())
	if terms.Prompts == "" {
		h.Set(protocol.PromptsHeader, protocol.NoPrompts)
		return nil
	}
	if served.PromptsNumber >= 0 {
		h.Set(protocol.PromptsHeader, strconv.Itoa(served.PromptsNumber))
	}
	set, err := g.calls.Prompts(terms.Prompts)
	if err != nil {
		return fault(err)
	}
	replaced, err := request.Replaced(set)
	h.Set(protocol.ReplacedHeader, strconv.Itoa(replaced))
	return err
}

// conversationOf finds the conversation that a request belongs to, or begins one. The terms
// are those of a conversation that would begin now. With fresh, it begins one in any case, which
// is the one that goes on from the same messages.
func (g *Gateway) conversationOf(r *http.Request, served model.Served, request *conversation.Request, user string, fresh bool) (of record.Conversation, terms record.Terms, created bool, err error) {
	ctx := r.Context()
	named, err := conversationName(r)
	if err != nil {
		return of, terms, false, err
	}
	none, err := wantsNoPrompts(r)
	if err != nil {
		return of, terms, false, err
	}
	if none {
		served.Prompts = ""
	}
	want := record.Conversation{Run: served.Run, Name: named, Key: clientOf(r.Context()).key.Name, Policy: served.Policy, Version: served.Number, Pinned: served.Pinned, User: user}
	scope := fmt.Sprintf("%q %q %t", want.User, want.Policy, none)
	if want.Pinned {
		scope += " " + strconv.Itoa(want.Version)
	}
	request.Again = sdkRetries(r) > 0
	request.Served = &conversation.Served{
		Client: want.Key, Scope: scope, Deliver: served.DeliverUnrecorded,
		Unrecorded: func(a record.Address, cause error) { g.logUnrecorded(a.String(), cause) },
	}
	if len(served.Redactor) > 0 {
		request.Served.Redact = func(ctx context.Context, text string) (string, error) {
			if g.config.Redact == nil {
				return "", errors.New("this gateway runs no redactors")
			}
			return g.config.Redact(ctx, served.Redactor, served.RedactorTimeout, text)
		}
	}
	if named == "" {
		want.Opening = conversation.OpeningDigest(scope, request)
	} else {
		request.Served.Scope = "" // nobody finds it by its messages
	}
	if fresh {
		if said := lastReply(request.Dialog); said > 0 {
			want.Opening = conversation.DialogDigest(scope, request.Dialog[:said])
		}
		return g.begin(ctx, want, served)
	}
	of, err = g.find(ctx, want, scope, request)
	if err == nil {
		if of, err = g.still(r, of, served); err == nil {
			return of, termsOf(served, of), false, nil
		}
	}
	if !errors.Is(err, record.ErrNotFound) {
		return of, terms, false, err
	}
	return g.begin(ctx, want, served)
}

// termsOf returns the terms of a conversation that begins.
func termsOf(served model.Served, c record.Conversation) record.Terms {
	return record.Terms{
		Policy: c.Policy, Version: c.Version, Codec: served.Codec, Temperature: 1, MaxTokens: servedTokens, History: record.HistoryAppend,
		Prompts: served.Prompts, ClientSampling: true, MaxCalls: served.MaxCalls,
	}
}

// find finds the conversation that a request belongs to: by its address or its name, by the
// reply that it names, or by its messages. It returns record.ErrNotFound if a new one begins.
func (g *Gateway) find(ctx context.Context, want record.Conversation, scope string, request *conversation.Request) (record.Conversation, error) {
	conversations := g.config.Conversations
	switch {
	case strings.Contains(want.Name, "/"):
		return g.addressed(ctx, want)
	case want.Name != "":
		return found(conversations.NamedConversation(ctx, want))
	case request.Previous != "":
		of, err := found(conversations.ConversationWithReply(ctx, request.Previous))
		if errors.Is(err, record.ErrNotFound) || err == nil && !mayContinue(of, want) {
			f := wire.Invalid("previous_response_id", "there is no recorded reply %q: send the whole dialog", request.Previous)
			f.Code = "previous_response_not_found"
			return of, f
		}
		return of, err
	}
	said := lastReply(request.Dialog)
	switch {
	case said > 0:
		return found(conversations.ConversationOfReply(ctx, want.Run, want.Key, conversation.DialogDigest(scope, request.Dialog[:said])))
	case request.Again:
		return found(conversations.ConversationOfReply(ctx, want.Run, want.Key, want.Opening))
	}
	return record.Conversation{}, record.ErrNotFound
}

// lastReply returns how many messages there are up to and with the last one of the assistant;
// 0 if it has said nothing.
func lastReply(messages []dialog.Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == dialog.Assistant {
			return i + 1
		}
	}
	return 0
}

// found marks faults of what finds conversations.
func found(of record.Conversation, err error) (record.Conversation, error) {
	if err == nil || errors.Is(err, record.ErrNotFound) {
		return of, err
	}
	return of, fmt.Errorf("%w: %w", errConversation, err)
}

// addressed finds a conversation by its address. Those of other clients, users and versions
// are not there.
func (g *Gateway) addressed(ctx context.Context, want record.Conversation) (of record.Conversation, err error) {
	const name = protocol.ConversationHeader
	missing := &wire.Failure{
		Status: http.StatusNotFound, Code: "conversation_not_found", Param: name,
		Message: fmt.Sprintf("there is no conversation %q with this version: leave the header %s out, or give the conversation a name", want.Name, name),
	}
	a, err := record.ParseAddress(want.Name)
	if err != nil || a.Kind != record.Served || a.Run != want.Run {
		return of, missing
	}
	if of, err = found(g.config.Conversations.Conversation(ctx, a.Run, a.Task)); err != nil && !errors.Is(err, record.ErrNotFound) {
		return of, err
	}
	if err != nil || !mayContinue(of, want) {
		return of, missing
	}
	of.Name = "" // it is called by its address
	return of, nil
}

// mayContinue reports whether a request may be the next one of a conversation.
func mayContinue(of, want record.Conversation) bool {
	return of.Run == want.Run && of.Key == want.Key && of.User == want.User && of.Policy == want.Policy && (!want.Pinned || of.Version == want.Version)
}

// still returns a conversation that was found. If the files of its version were deleted
// meanwhile, it returns record.ErrNotFound, so that another conversation begins, or refuses
// the request if the client has named the conversation.
func (g *Gateway) still(r *http.Request, of record.Conversation, served model.Served) (record.Conversation, error) {
	if of.Version == served.Number {
		return of, nil
	}
	id := model.VersionID{Run: of.Run, Policy: of.Policy, Number: of.Version}
	now, err := g.config.Versions.Resolve(r.Context(), id.String())
	switch {
	case err != nil:
		return of, fmt.Errorf("find version %s: %w", id, err)
	case !now.Collected:
		return of, nil
	case r.Header.Get(protocol.ConversationHeader) == "":
		return of, record.ErrNotFound
	}
	return of, &wire.Failure{
		Status: http.StatusGone, Code: "version_gone", Param: protocol.ConversationHeader,
		Message: fmt.Sprintf("version %s, which answers this conversation, is no longer kept: begin another conversation", id),
	}
}

// begin begins a conversation with the version that the client asks for, or with the
// candidate of an experiment.
func (g *Gateway) begin(ctx context.Context, want record.Conversation, served model.Served) (of record.Conversation, terms record.Terms, created bool, err error) {
	if g.config.Experiments != nil && !served.Pinned && !served.Newest {
		unit := cmp.Or(want.User, want.Name)
		if unit == "" {
			unit = rand.Text()
		}
		version, experiment, candidate, err := g.config.Experiments.Candidate(ctx, want.Run, want.Policy, unit)
		if err != nil {
			return of, terms, false, fmt.Errorf("%w: choose version: %w", errConversation, err)
		}
		switch {
		case candidate:
			want.Version, want.Experiment, want.Candidate = version, experiment, true
		case version == want.Version: // otherwise another version was promoted in place of the control
			want.Experiment = experiment
		}
	}
	terms = termsOf(served, want)
	of, created, err = g.config.Conversations.BeginConversation(ctx, want, terms)
	if err != nil {
		return of, terms, false, fmt.Errorf("%w: %w", errConversation, err)
	}
	return of, terms, created, nil
}

// maxConversationName is the most bytes of a conversation's name, and maxUser those of a
// user's.
const (
	maxConversationName = 128
	maxUser             = 256
)

// A name of a conversation has no slash, unlike an address.
var conversationNames = regexp.MustCompile(`^[0-9A-Za-z._:@+=~-]+$`)

// conversationName returns the name or the address by which a client calls its conversation;
// empty if it gives none.
func conversationName(r *http.Request) (string, error) {
	const name = protocol.ConversationHeader
	value := r.Header.Get(name)
	switch {
	case value == "":
		return "", nil
	case strings.Contains(value, "/") && len(value) <= 2*maxConversationName:
		return value, nil // an address, which is checked where it is looked up
	case len(value) > maxConversationName:
		return "", wire.Invalid(name, "the header %s has %d bytes: a conversation's name has at most %d", name, len(value), maxConversationName)
	case !conversationNames.MatchString(value):
		return "", wire.Invalid(name, "the header %s is %q: a conversation's name has only letters, digits and . _ : @ + = ~ -", name, value)
	}
	return value, nil
}

// hashUser returns the hash of the user that a request names, in the header or in the field
// of its API, and puts it in the place of the name in the body, which is recorded. It is
// empty if the request names none.
func (g *Gateway) hashUser(r *http.Request, request *wire.Request) (string, error) {
	user := r.Header.Get(protocol.UserHeader)
	if len(user) > maxUser {
		return "", wire.Invalid(protocol.UserHeader, "the header %s has %d bytes: a user's name has at most %d", protocol.UserHeader, len(user), maxUser)
	}
	hash := func(user string) (string, error) {
		h, err := g.config.Conversations.HashUser(r.Context(), user)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errConversation, err)
		}
		return h, nil
	}
	var named struct {
		User     json.RawMessage `json:"user"`
		Safety   json.RawMessage `json:"safety_identifier"`
		Metadata json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(request.Body, &named) // the body was decoded before
	var metadata struct {
		User json.RawMessage `json:"user_id"`
	}
	_ = json.Unmarshal(named.Metadata, &metadata) // metadata that is no object names nobody
	if user = cmp.Or(user, nameIn(metadata.User), nameIn(named.User), nameIn(named.Safety)); user == "" {
		return "", nil
	}
	out, err := hash(user)
	if err == nil && (metadata.User != nil || named.User != nil || named.Safety != nil) {
		request.Body, err = withoutUser(request.Body, out)
	}
	return out, err
}

// nameIn returns the name of a user in a field, which may also be a number.
func nameIn(field json.RawMessage) string {
	var text string
	if json.Unmarshal(field, &text) == nil {
		return text
	}
	return string(field)
}

// withoutUser returns a body with the hash wherever it names a user.
func withoutUser(body []byte, hash string) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := wire.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	text, _ := json.Marshal(hash) // texts always encode
	replace := func(fields map[string]json.RawMessage, names ...string) {
		for key := range fields {
			if slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(key, name) }) {
				fields[key] = text
			}
		}
	}
	replace(fields, "user", "safety_identifier")
	for key, value := range fields {
		metadata := map[string]json.RawMessage{}
		if strings.EqualFold(key, "metadata") && json.Unmarshal(value, &metadata) == nil && len(metadata) > 0 {
			replace(metadata, "user_id")
			fields[key], _ = json.Marshal(metadata) // it was decoded from JSON
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil, fault(fmt.Errorf("encode request: %w", err))
	}
	return out, nil
}

// sdkRetries returns how often the client says that it has sent the request before.
func sdkRetries(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get(protocol.SDKRetryHeader)) // absent or malformed: 0
	return n
}

// unrecordedSeconds is how long after one unrecorded reply the next is not logged.
const unrecordedSeconds = 60

// logUnrecorded logs that a reply was delivered although it could not be recorded, at most
// once a minute. The metric counts all of them.
func (g *Gateway) logUnrecorded(what string, cause error) {
	now, last := g.config.Now().Unix(), g.unrecorded.Load()
	if now-last < unrecordedSeconds && last != 0 || !g.unrecorded.CompareAndSwap(last, now) {
		return
	}
	g.config.Log.Warn("served without a record", zap.String("conversation", what), zap.Error(cause))
}
