package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/trained"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	// maxMessages is how many messages of a request are shown, the newest ones.
	maxMessages = 40
	// maxRepeated is how many messages are shown of a request without new messages.
	maxRepeated = 4
	// maxOfName is how many letters of instructions name an agent.
	maxOfName = 40
	// maxBases is how many earlier calls are read that calls of the page continue.
	maxBases = 4
)

// callBlock is a model call of an attempt: what was new in its request, and its reply.
type callBlock struct {
	Seq      int
	ID       string
	Agent    string
	Policy   string // that answered it; "" in a run of one policy
	API      string
	Version  int
	Prompt   int // tokens that follow those of the call that it continues
	Sampled  int
	Finish   string
	Took     time.Duration
	Replayed int    // the attempt that sampled it, 0 for this one
	Border   string // says that calls of another attempt begin here, or ""
	Drift    bool
	Partly   bool // the agent closed its stream
	CutOff   bool // a limit of tokens ended the reply
	// Untrained is true for a call of a trained attempt of which no token is trained.
	Untrained bool
	Problem   string
	// Continues says which messages precede those that are shown, or that the request has
	// no new messages.
	Continues string
	Skipped   int // messages that are not shown
	Messages  []messageBlock
	Text      format.Clipped // the prompt of a Completions request
	Tools     []toolBlock
	Exact     format.Clipped // the new tokens of the prompt as text
	Tokens    []tokenMark
	From      int // the first token that is shown
	Rest      int // number of tokens that are not shown
	Replies   []messageBlock
	Unread    format.Clipped // the request, where it can't be read
	Mean      *float64
	// Advantage is the mean advantage of the call's trained tokens.
	Advantage *trained.Mean
	// Judgments is the feedback on the reply of a recorded conversation, and MoreJudgments
	// how much is not shown.
	Judgments     []judgmentBlock
	MoreJudgments int
	said          string // the text of the reply
}

// messageBlock is a message of a dialog.
type messageBlock struct {
	Role      string
	Name      string
	Content   format.Clipped
	Reasoning format.Clipped
	Calls     []toolCall
}

type (
	// toolCall is a tool that a message asks for.
	toolCall struct{ Name, Arguments string }
	// toolBlock is a tool that is offered.
	toolBlock struct {
		Name        string
		Description string
	}
)

// conversation makes blocks of the calls of an attempt.
type conversation struct {
	page    *Server
	attempt *attemptBody
	credit  *trained.Attempt
	codec   dialog.Codec // nil if there is none
	room    int          // for tokens

	calls    []record.Exchange
	requests map[int]*wire.Request // by Seq; nil if a request can't be parsed
	names    []string              // readable names of agents
	offered  string                // the tools of the call before
}

// read decodes the requests of calls and of those that they continue.
func (c *conversation) read(ctx context.Context, calls []record.Exchange) error {
	c.calls, c.requests = calls, map[int]*wire.Request{}
	requests := attribution.Requests(calls)
	for i, r := range requests {
		c.requests[calls[i].Seq] = r
	}
	c.names = agentNames(attribution.OfRequests(calls, requests, nil, c.attempt.Terms.Ignore), requests)
	bases := 0
	for i, call := range calls {
		base := call.Parent
		if i == 0 && base < 0 {
			base = call.Seq - 1
		}
		if _, known := c.requests[base]; known || base < 0 || bases == maxBases {
			continue
		}
		bases++
		before, err := c.page.Records.ExchangesBetween(ctx, c.attempt.Address, base, base+1)
		if err != nil {
			return err
		}
		for k, r := range attribution.Requests(before) {
			c.requests[before[k].Seq] = r
		}
	}
	return nil
}

// add adds the block of a call. rest is the first of its tokens that the page has no room
// for, or 0 if it has room for all.
func (c *conversation) add(i, offset int) (rest int) {
	call := c.calls[i]
	b := callBlock{
		Seq: call.Seq, ID: call.ID, Agent: c.names[i], API: call.API, Version: call.Version, Prompt: len(call.Prompt),
		Sampled: len(call.Completion), Finish: call.Finish, Took: call.Duration, Replayed: call.ReplayedFrom, Drift: call.Drift, Partly: call.PartlyRead, CutOff: call.CutOff(),
		Problem: format.FirstLine(call.ParseError),
	}
	if call.Policy != model.DefaultPolicy {
		b.Policy = format.FirstLine(call.Policy)
	}
	if b.API == "" {
		b.API = "chat"
	}
	if c.credit != nil {
		b.Advantage = c.credit.Calls[call.Seq].Advantage().Known()
		b.Untrained = b.Advantage == nil
	}
	b.Border = c.border(i)
	if offset == 0 {
		c.messages(&b, call)
		if c.codec != nil {
			b.Exact = format.Clip(c.codec.Text(call.Prompt), format.MaxOfMessage)
		}
	}
	marks := c.marks(call)
	for _, t := range marks {
		if t.Logprob != nil {
			if b.Mean == nil {
				b.Mean = new(float64)
			}
			*b.Mean += *t.Logprob / float64(len(marks))
		}
	}
	b.From = min(offset, len(marks))
	end := min(b.From+c.room, len(marks))
	b.Tokens, b.Rest = marks[b.From:end], len(marks)-end
	c.room -= end - b.From
	replies := attribution.Replies(call.Response)
	if len(replies) > 0 {
		b.said = replies[0].Content
	}
	if b.Rest > 0 {
		rest = end
	} else {
		for _, m := range replies {
			b.Replies = append(b.Replies, messageOf(m))
		}
	}
	c.attempt.Calls = append(c.attempt.Calls, b)
	return rest
}

// agentNames returns readable names for the agents of calls. An agent whose name is only
// a digest of its instructions gets the first words of these instructions as its name, if
// they distinguish it from the others.
func agentNames(names []attribution.Name, requests []*wire.Request) []string {
	words, meant := map[string]string{}, map[string]string{} // words by name, and names by words
	for i, n := range names {
		if n.Source != attribution.Instructions || requests[i] == nil || words[n.Agent] != "" {
			continue
		}
		for _, m := range requests[i].Dialog {
			if m.Role == dialog.System && strings.TrimSpace(m.Content) != "" {
				text := "“" + format.Words(m.Content, maxOfName) + "”"
				if meant[text] != "" { // such as other tools, or instructions that changed later
					text += " " + format.FirstLine(n.Agent)
				}
				words[n.Agent], meant[text] = text, n.Agent
				break
			}
		}
	}
	out := make([]string, len(names))
	for i, n := range names {
		if out[i] = words[n.Agent]; out[i] == "" {
			out[i] = format.FirstLine(n.Agent)
		}
	}
	return out
}

// border returns a text for the place where the calls of one attempt end and those of
// another begin, or "".
func (c *conversation) border(i int) string {
	call := c.calls[i]
	number := c.attempt.Address.Attempt
	switch {
	case call.Divergence != nil:
		return fmt.Sprintf("From here on attempt %d went its own way: it did not repeat call %d of attempt %d. %s",
			number, call.Divergence.EarlierSeq, call.Divergence.Earlier, format.FirstLine(call.Divergence.Difference))
	case i == 0 && call.ReplayedFrom > 0:
		return fmt.Sprintf("From the record of attempt %d", call.ReplayedFrom)
	case i == 0 || call.ReplayedFrom == c.calls[i-1].ReplayedFrom:
		return ""
	case call.ReplayedFrom > 0:
		return fmt.Sprintf("From the record of attempt %d", call.ReplayedFrom)
	}
	return fmt.Sprintf("Attempt %d sampled from here on", number)
}

// messages adds what is new in a request.
func (c *conversation) messages(b *callBlock, call record.Exchange) {
	r := c.requests[call.Seq]
	if r == nil {
		b.Unread = format.Clip(string(call.Request), format.MaxOfMessage)
		return
	}
	b.Text = format.Clip(r.Text, format.MaxOfMessage)
	base := call.Parent
	if base < 0 {
		base = call.Seq - 1
	}
	fresh, most := r.Dialog, maxMessages
	if before := c.requests[base]; before != nil {
		shared := dialog.Shared(before.Dialog, r.Dialog)
		b.Continues = continues(base, shared, len(before.Dialog), len(r.Dialog))
		if fresh = r.Dialog[shared:]; len(fresh) == 0 { // an earlier request has the same messages
			fresh, most = r.Dialog, maxRepeated
		}
	}
	if n := len(fresh); n > most {
		b.Skipped, fresh = n-most, fresh[n-most:]
	}
	for _, m := range fresh {
		b.Messages = append(b.Messages, messageOf(m))
	}
	var names []string
	for _, t := range r.Tools {
		names = append(names, t.Name+string(t.Parameters))
		b.Tools = append(b.Tools, toolBlock{format.FirstLine(t.Name), format.Clip(t.Description, format.MaxOfResult).Text})
	}
	if offered := strings.Join(names, "\x00"); offered == c.offered {
		b.Tools = nil
	} else {
		c.offered = offered
	}
	b.Tools = b.Tools[:min(len(b.Tools), maxMessages)]
}

// continues says how a request continues an earlier call. The request has now messages,
// and the call's request had before messages. The first shared messages of the request
// equal those of the call, including its reply.
func continues(call, shared, before, now int) string {
	switch {
	case shared == 0:
		return ""
	case shared == now && now == before:
		return fmt.Sprintf("the same messages as call %d:", call)
	case shared == now:
		return fmt.Sprintf("nothing new: %s of call %d again:", counted(shared, "message", "the first "), call)
	case shared > before:
		return fmt.Sprintf("after %s of call %d and its reply", counted(before, "message", "the "), call)
	case shared == before:
		return fmt.Sprintf("after %s of call %d, without its reply", counted(before, "message", "the "), call)
	}
	return fmt.Sprintf("after %s of the %d of call %d", counted(shared, "message", "the first "), before, call)
}

// counted returns the number and the things as text. For one thing it leaves out the
// number.
func counted(n int, thing, before string) string {
	if n == 1 {
		return before + thing
	}
	return fmt.Sprintf("%s%d %ss", before, n, thing)
}

func messageOf(m dialog.Message) messageBlock { return messageWithin(m, format.MaxOfMessage) }

// messageWithin returns a message with each part cut to room bytes.
func messageWithin(m dialog.Message, room int) messageBlock {
	b := messageBlock{Role: format.FirstLine(string(m.Role)), Name: format.FirstLine(m.Name), Content: format.Clip(m.Content, min(room, format.MaxOfMessage)), Reasoning: format.Clip(m.Reasoning, min(room, format.MaxOfMessage))}
	for _, call := range m.ToolCalls[:min(len(m.ToolCalls), maxMessages)] {
		b.Calls = append(b.Calls, toolCall{format.FirstLine(call.Function.Name), format.Clip(call.Function.Arguments, min(room, format.MaxOfResult)).Text})
	}
	return b
}

// size returns the number of bytes of the message's text.
func (b messageBlock) size() int {
	n := len(b.Content.Text) + len(b.Reasoning.Text)
	for _, c := range b.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// anyGateway takes the place of the gateway's URL in a command if no gateway is known.
const anyGateway = "$OPENAI_BASE_URL"

// callPart writes a part of a recorded call: the request or the reply as JSON, or a command
// that asks for it again.
func (s *Server) callPart(w http.ResponseWriter, r *http.Request) {
	kind, body, err := s.partOf(r)
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		return // the client has left
	case errors.Is(err, record.ErrNotFound), errors.Is(err, record.ErrAddress):
		http.Error(w, format.Shown(err.Error()), http.StatusNotFound)
		return
	default:
		s.Log.Error("part of a call", zap.String("path", r.URL.Path), zap.Error(err))
		http.Error(w, "the call could not be read: "+format.Shown(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // it is no error if the reader has left
}

func (s *Server) partOf(r *http.Request) (kind string, body []byte, err error) {
	at, err := placeOf(r.PathValue("run"), r.PathValue("step"), r.PathValue("task"), r.PathValue("sample"), r.PathValue("attempt"))
	if err != nil {
		return "", nil, err
	}
	seq, err := strconv.Atoi(r.PathValue("call"))
	if err != nil || seq < 0 {
		return "", nil, fmt.Errorf("%w: there is no such call", record.ErrNotFound)
	}
	calls, err := s.Records.ExchangesBetween(r.Context(), at, seq, seq+1)
	if err != nil {
		return "", nil, err
	}
	if len(calls) == 0 {
		return "", nil, fmt.Errorf("%w: %s has no call %d", record.ErrNotFound, at, seq)
	}
	switch r.PathValue("part") {
	case "request.json":
		return "application/json", indented(calls[0].Request), nil
	case "reply.json":
		return "application/json", indented(calls[0].Response), nil
	case "curl":
		return "text/plain; charset=utf-8", []byte(s.curl(r, calls[0])), nil
	}
	return "", nil, fmt.Errorf("%w: a call has request.json, reply.json and curl", record.ErrNotFound)
}

// indented returns JSON with indentation. Text that is not JSON is returned as a JSON
// string.
func indented(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") == nil {
		return escaped(b.Bytes())
	}
	text, err := json.Marshal(string(raw))
	if err != nil {
		return nil // strings always encode
	}
	return escaped(text)
}

// escaped returns JSON with the same meaning, in which characters that a terminal or an
// editor would obey, hide or reverse are written as JSON's escape sequences.
func escaped(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			out = append(out, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

// curl returns a command for a POSIX shell that sends the call's request again, to the
// version that answered it.
func (s *Server) curl(r *http.Request, call record.Exchange) string {
	gateway := anyGateway
	if s.Fleet != nil {
		if at, err := s.Fleet.Gateway(r.Context()); err == nil {
			gateway = at
		}
	}
	path := map[wire.API]string{wire.Completions: "/completions", wire.Responses: "/responses", wire.Messages: "/messages"}[wire.API(call.API)]
	if path == "" {
		path = "/chat/completions"
	}
	body := []byte(call.Request)
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil && fields != nil {
		name, err := json.Marshal(fmt.Sprintf("%s@%d", call.Address.Run, call.Version))
		if err == nil {
			fields["model"] = name
			if changed, err := json.Marshal(fields); err == nil {
				body = changed
			}
		}
	}
	return fmt.Sprintf("curl \"%s%s\" -H 'Content-Type: application/json' -d '%s'\n", gateway, path, strings.ReplaceAll(string(escaped(body)), "'", `'\''`))
}

const (
	// maxCutOff is how many attempts with replies that were cut off are read, and
	// cutOffPerPage how many a page shows.
	maxCutOff     = 10_000
	cutOffPerPage = 100
)

// cutOffBody is the list of a run's attempts with replies that a limit of tokens ended.
type cutOffBody struct {
	Attempts []cutOffRow
	Search   *listing.Form
	Full     bool // there may be more than were read
	Most     int
}

// cutOffRow is an attempt in the list.
type cutOffRow struct {
	record.Trial
	Text, Path     string
	Step, StepPath string
	State          string
}

// cutOff lists the attempts of a run with replies that were cut off.
func (s *Server) cutOff(r *http.Request) (view, error) {
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	trials, err := s.Records.TrialsCutOff(r.Context(), run.Name, maxCutOff)
	if err != nil {
		return view{}, err
	}
	b := cutOffBody{Full: len(trials) == maxCutOff, Most: maxCutOff}
	rows := make([]cutOffRow, len(trials))
	for i, t := range trials {
		state := "no result"
		if t.Outcome != record.OutcomeRunning {
			state = words(record.AttemptState(t.Outcome))
		}
		rows[i] = cutOffRow{
			Trial: t, Text: fmt.Sprintf("%s, sample %d, attempt %d", format.FirstLine(t.TaskID), t.Sample, t.Attempt), Path: attemptPath(t.Address),
			Step: stepName(t.Kind, t.Step), StepPath: stepPath(run.Name, t.Kind, t.Step) + "?cut_off=1#picked", State: state,
		}
	}
	b.Attempts, b.Search = listing.Narrow(r, rows, cutOffPerPage, cutOffOrder())
	v := runView("cut_off", run, "Steps", link{Text: "Steps", Path: runPath(run.Name) + "/steps"}, link{Text: "Replies that were cut off"})
	v.Body = b
	return v, nil
}

// cutOffOrder says how the attempts can be searched, filtered and sorted.
func cutOffOrder() listing.Order[cutOffRow] {
	of := func(kinds ...record.Kind) func(cutOffRow) bool {
		return func(row cutOffRow) bool {
			for _, kind := range kinds {
				if row.Kind == kind {
					return true
				}
			}
			return false
		}
	}
	return listing.Order[cutOffRow]{
		Text: func(a cutOffRow) string { return a.Text + " " + a.Step + " " + a.State },
		Filters: []listing.Filter[cutOffRow]{
			{Text: "all"},
			{Name: "training", Text: "training", Keep: of(record.Train, record.Reserve)},
			{Name: "evaluations", Text: "evaluations", Keep: of(record.Gate, record.Test, record.Minibatch, record.Validation)},
		},
		Sorts: []listing.Sort[cutOffRow]{
			{Text: "kind and step"},
			{Name: "newest", Text: "newest", Compare: func(a, b cutOffRow) int { return b.Begun.Compare(a.Begun) }},
			{Name: "most", Text: "cut off, most first", Compare: func(a, b cutOffRow) int { return cmp.Compare(b.CutOff, a.CutOff) }},
			{Name: "low", Text: "reward, lowest first", Compare: func(a, b cutOffRow) int { return compareKnown(a.Reward, b.Reward, 1) }},
			{Name: "high", Text: "reward, highest first", Compare: func(a, b cutOffRow) int { return compareKnown(a.Reward, b.Reward, -1) }},
			{Name: "tokens", Text: "tokens, most first", Compare: func(a, b cutOffRow) int { return cmp.Compare(b.Tokens, a.Tokens) }},
		},
	}
}
