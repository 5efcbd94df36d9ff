package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// replyPath is the path to which questions are posted.
	replyPath = "/playground/reply"
	// maxAsked is how long a request of the playground may be, in bytes, and maxOfError how
	// much of an error of the gateway is passed on.
	maxAsked   = 1 << 20
	maxOfError = 4 << 10
	// maxReplies is how many replies are streamed at the same time.
	maxReplies = 16
)

// versionReference names a version that the playground asks for, of a run or of one of its
// policies.
var versionReference = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,62})?@([0-9]{1,9}|promoted|newest)$`)

// playgroundBody is the page on which one can chat with versions.
type playgroundBody struct {
	Runs []string
	Run  string
	A, B string // versions, as references
	// Policies are those of a run with several: only one of them can be asked. Policy is the
	// one that is.
	Policies []string
	Policy   string
	Problem  string // why no version could answer
	Tools    string // those of the newest attempt, as JSON
}

func (s *Server) playground(r *http.Request) (view, error) {
	ctx := r.Context()
	runs, err := s.Records.LatestRuns(ctx, 0, runsPerPage)
	if err != nil {
		return view{}, err
	}
	b := playgroundBody{Run: r.URL.Query().Get("run")}
	for _, run := range runs[:min(len(runs), runsPerPage)] {
		b.Runs = append(b.Runs, run.Name)
	}
	if b.Run == "" && len(b.Runs) > 0 {
		b.Run = b.Runs[0]
	}
	if _, err := s.gateway(ctx); err != nil {
		b.Problem = format.FirstLine(err.Error())
	}
	if b.Run != "" {
		b.Policy = r.URL.Query().Get("policy")
		if err := s.sides(ctx, &b, r.URL.Query().Get("version")); err != nil {
			return view{}, err
		}
	}
	return view{template: "playground", Title: "Playground", Crumbs: []link{{Text: "Playground"}}, Body: b, Section: "/playground", Script: "playground.js"}, nil
}

// sides adds the versions and the tools.
func (s *Server) sides(ctx context.Context, b *playgroundBody, version string) error {
	last, err := s.Records.LastVersion(ctx, b.Run, model.DefaultPolicy)
	switch {
	case errors.Is(err, record.ErrNotFound):
		b.Problem = fmt.Sprintf("Run %s has no version yet.", format.FirstLine(b.Run))
		return nil
	case err != nil:
		return err
	}
	of, err := s.asksFor(ctx, b)
	if err != nil {
		return err
	}
	b.A = fmt.Sprintf("%s@%d", of, last.Number)
	if reference := of + "@" + version; versionReference.MatchString(reference) {
		b.A = reference
	}
	promoted, _, err := s.promoted(ctx, b.Run, model.DefaultPolicy)
	if err != nil {
		return err
	}
	b.B = of + "@" + beside(b.A, last.Number, promoted)
	b.Tools, err = s.toolsOf(ctx, b.Run)
	return err
}

// asksFor returns how the versions of a run are named that can be asked: RUN, or RUN:POLICY
// for a run with several policies, whose joint versions have no weights of their own.
func (s *Server) asksFor(ctx context.Context, b *playgroundBody) (string, error) {
	run, err := s.Records.Run(ctx, b.Run)
	if err != nil {
		return "", err
	}
	b.Policies = specOf(run).TrainedPolicies()
	if len(b.Policies) == 0 {
		b.Policy = ""
		return b.Run, nil
	}
	if !slices.Contains(b.Policies, b.Policy) {
		b.Policy = b.Policies[0]
	}
	return b.Run + ":" + b.Policy, nil
}

// beside returns what to compare a version with: the promoted one, or if that is the version
// itself, the start, or for the start the newest version.
func beside(reference string, last int, promoted *int) string {
	_, shown, _ := strings.Cut(reference, "@")
	number := last // of "newest"
	if n, err := strconv.Atoi(shown); err == nil {
		number = n
	} else if shown == "promoted" && promoted != nil {
		number = *promoted
	}
	switch {
	case promoted != nil && *promoted != number:
		return "promoted"
	case number == 0:
		return strconv.Itoa(last)
	}
	return "0"
}

// toolsOf returns the tools that were offered to the first call of the newest finished
// step.
func (s *Server) toolsOf(ctx context.Context, run string) (string, error) {
	step, err := s.lastStep(ctx, run)
	if err != nil || step == 0 {
		return "", err
	}
	trials, err := s.Records.TrialsOfStep(ctx, run, record.Train, step)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(trials, func(t record.Trial) bool { return t.Calls > 0 })
	if i < 0 {
		return "", nil
	}
	calls, err := s.Records.ExchangesBetween(ctx, trials[i].Address, 0, 1)
	if err != nil || len(calls) == 0 {
		return "", err
	}
	var request struct {
		Tools json.RawMessage `json:"tools"`
	}
	if json.Unmarshal(calls[0].Request, &request) != nil || len(request.Tools) == 0 || len(request.Tools) > format.MaxOfSpec {
		return "", nil
	}
	return format.Clean(string(indented(request.Tools))), nil
}

// gateway returns the URL at which versions can be asked.
func (s *Server) gateway(ctx context.Context) (string, error) {
	if s.Fleet == nil {
		return "", errors.New("no stack runs on this directory, and the page starts none: start it with `fulgurite dev`")
	}
	return s.Fleet.Gateway(ctx)
}

// asked is a request of the playground.
type asked struct {
	Version     string          `json:"version"`
	Messages    json.RawMessage `json:"messages"`
	Tools       json.RawMessage `json:"tools"`
	Temperature float64         `json:"temperature"`
	MaxTokens   int             `json:"max_tokens"`
}

// request returns the body for the gateway.
func (a asked) request() ([]byte, error) {
	var messages, tools []any
	switch {
	case !versionReference.MatchString(a.Version):
		return nil, errors.New("version: want RUN@NUMBER, RUN@promoted or RUN@newest, or RUN:POLICY in place of RUN")
	case json.Unmarshal(a.Messages, &messages) != nil || len(messages) == 0:
		return nil, errors.New("messages: want a list of messages")
	case a.Tools != nil && json.Unmarshal(a.Tools, &tools) != nil:
		return nil, errors.New("tools: want a JSON list of tools, as in a request of chat completions")
	case a.Temperature < 0 || a.Temperature > 2:
		return nil, errors.New("temperature: want a number from 0 to 2")
	case a.MaxTokens < 1 || a.MaxTokens > 1<<16:
		return nil, errors.New("max_tokens: want a number from 1 to 65536")
	}
	body := map[string]any{"model": a.Version, "messages": messages, "stream": true, "temperature": a.Temperature, "max_tokens": a.MaxTokens}
	if len(tools) > 0 {
		body["tools"] = tools
	}
	return json.Marshal(body)
}

// reply asks a version and streams what it says, as the gateway does.
func (s *Server) reply(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if !access.Of(r.Context()).May(access.Operate) { // replies use capacity that runs need
		http.Error(w, "your token may only read", http.StatusForbidden)
		return
	}
	select {
	case s.replying <- struct{}{}:
		defer func() { <-s.replying }()
	default:
		http.Error(w, "too many replies are being streamed: wait for one to end", http.StatusServiceUnavailable)
		return
	}
	if !s.begin() {
		http.Error(w, "the page is being closed", http.StatusServiceUnavailable)
		return
	}
	defer s.work.Done()
	var in asked
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsked)).Decode(&in); err != nil {
		http.Error(w, "the request can't be read: "+format.FirstLine(err.Error()), http.StatusBadRequest)
		return
	}
	body, err := in.request()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	at, err := s.gateway(r.Context())
	if err != nil {
		http.Error(w, format.Shown(err.Error()), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // Close breaks replies off
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		http.Error(w, "the gateway's address can't be asked: "+format.FirstLine(err.Error()), http.StatusBadGateway)
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if s.ServingKey != "" {
		request.Header.Set("Authorization", "Bearer "+s.ServingKey)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		http.Error(w, "the gateway does not answer: "+format.FirstLine(err.Error()), http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxOfError)) // an incomplete text is better than none
		http.Error(w, format.Shown(messageIn(text)), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	stream(w, answer.Body)
}

// messageIn returns the message of an error in OpenAI's format, or the whole body if it
// has another format.
func messageIn(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(body)
}

// stream passes bytes on as they come.
func stream(w http.ResponseWriter, from io.Reader) {
	c := http.NewResponseController(w)
	piece := make([]byte, 4<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if _, err := w.Write(piece[:n]); err != nil || c.Flush() != nil {
				return // the reader left
			}
		}
		if err != nil {
			return // the stream broke off, so the client misses its end
		}
	}
}

// sameOrigin reports why a request that does something does not come from a page of this
// server.
func sameOrigin(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return errors.New("another site may not act here")
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Host == "" || origin.Host != r.Host {
		return errors.New("the request has to come from this page: its Origin header is missing or names another site")
	}
	return nil
}

// Sides returns the versions that are shown next to each other.
func (b playgroundBody) Sides() []string {
	if b.A == "" {
		return nil
	}
	return []string{b.A, b.B}
}
