package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

const (
	// servingKey is the key of operators. No client has it.
	servingKey = "the-key-of-the-operators-of-this-fleet"
	// requestTimeout is longer than a hang, so that no client gives a request up that a
	// gateway would still answer.
	requestTimeout = 45 * time.Second
	// clientTurns is how many requests a conversation has at most.
	clientTurns = 4
	// latestFeedback is how long after a reply feedback is given at the latest.
	latestFeedback = 6 * time.Second
)

// servingClient is a client with a key of its own.
type servingClient struct {
	name     string
	scopes   string
	consents bool
	judges   bool
	key      string
}

func servingClients() []*servingClient {
	return []*servingClient{
		{name: "ada", scopes: "serve,feedback,consent", consents: true, judges: true},
		{name: "ben", scopes: "serve,feedback", judges: true},
		{name: "cal", scopes: "serve,consent", consents: true},
	}
}

// clients are programs that have conversations with the promoted version of a run, and give
// feedback on them. They note all that they send and get. They live in this process, which
// is not killed.
type clients struct {
	run      string
	gateways []string
	// experiment makes them judge by the version that answered, say secrets, and speak in the
	// name of the user who is forgotten.
	experiment bool
	all        []*servingClient
	http       *http.Client
	dialogs    atomic.Int64
	turns      atomic.Int64 // which gateway is asked next

	mu       sync.Mutex
	requests []checker.ServedRequest
	feedback []checker.GivenFeedback
	silenced bool // the user who is forgotten begins nothing more
	open     int  // what that user has begun to say: conversations and feedback
	begun    int  // conversations of that user
	more     int  // that the user may have beyond maxForgotten
}

// newClients makes keys for the clients of a run.
func newClients(ctx context.Context, run string, experiment bool, f *processes.Fleet, bin string) (*clients, error) {
	c := &clients{run: run, experiment: experiment, gateways: f.Gateways, all: servingClients(), http: &http.Client{Timeout: requestTimeout}}
	for _, one := range c.all {
		one.name += "-" + run // names of keys are given once
		command := exec.CommandContext(ctx, filepath.Join(bin, "fulgurite"), "keys", "create", one.name, "--scope", one.scopes, "--json", "--store", f.Store, "--blobs", f.Blobs)
		out, err := command.Output()
		var made struct{ Key string }
		if err == nil {
			err = json.Unmarshal(out, &made)
		}
		if err != nil {
			return nil, fmt.Errorf("make the key of client %s: %w", one.name, err)
		}
		one.key = made.Key
	}
	return c, nil
}

// talk has conversations, several at once, until stop is closed. Then it ends those that have
// begun, and returns when all feedback was answered.
func (c *clients) talk(ctx context.Context, seed uint64, stop <-chan struct{}) error {
	const atOnce = 6
	group, ctx := errgroup.WithContext(ctx)
	for i := range atOnce {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-stop:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				default:
				}
				if err := c.converse(ctx, group, random); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// dialog is a conversation as its client has it.
type dialog struct {
	number   int
	client   *servingClient
	name     string // empty if it is found by its messages
	user     string
	consent  string // the header, or empty
	consents bool
	redacted bool // a secret was said
	messages []json.RawMessage
}

// converse has one conversation. Feedback on it is given later, by goroutines of the group.
func (c *clients) converse(ctx context.Context, group *errgroup.Group, random *rand.Rand) error {
	d := c.begin(random)
	if d.user == forgottenUser {
		defer c.end()
	}
	turns := 1 + random.IntN(clientTurns)
	for turn := range turns {
		r := checker.ServedRequest{
			Client: d.client.name, Dialog: d.number, Turn: turn, User: d.user, Consents: d.consents,
			Text: fmt.Sprintf("(%d/%d)", d.number, turn),
		}
		c.plant(d, &r, random)
		stream := turn == turns-1 && random.IntN(2) == 0
		message, err := c.ask(ctx, d, &r, stream, random)
		c.mu.Lock()
		c.requests = append(c.requests, r)
		c.mu.Unlock()
		if err != nil || r.Reply.ID == "" {
			return err
		}
		d.messages = append(d.messages, message)
		for _, g := range c.judgments(d, r, random) {
			after := time.Duration(random.Int64N(int64(latestFeedback)))
			if g.User == forgottenUser {
				after /= 4
			}
			if d.user == forgottenUser {
				c.hold()
			}
			group.Go(func() error {
				if g.User == forgottenUser {
					defer c.end()
				}
				return c.giveLater(ctx, g, after)
			})
		}
		if err := pause(ctx, time.Duration(random.IntN(200))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// begin makes a conversation of a client. In a run with experiments, most clients consent and
// have many users, and some of the first conversations are those of the user who is forgotten.
func (c *clients) begin(random *rand.Rand) *dialog {
	d, people := &dialog{number: int(c.dialogs.Add(1)), client: c.all[random.IntN(len(c.all))]}, 20
	if c.experiment {
		people = 60
		if random.IntN(4) > 0 {
			d.client = c.all[0]
		}
	}
	d.consents = d.client.consents
	if random.IntN(3) == 0 {
		d.consents = random.IntN(2) == 0
		d.consent = strconv.FormatBool(d.consents)
	}
	if random.IntN(2) == 0 {
		d.name = fmt.Sprintf("dialog-%d", d.number)
	}
	if random.IntN(2) == 0 {
		d.user = fmt.Sprintf("person%d%s", random.IntN(people), userDomain)
	}
	if c.experiment && random.IntN(4) == 0 && c.speak(true) {
		d.client, d.user, d.consents, d.consent = c.all[0], forgottenUser, true, ""
	}
	return d
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask sends a request until a reply comes, and sometimes once more. It gives up for good now
// and then, so that there are replies that nobody got.
func (c *clients) ask(ctx context.Context, d *dialog, r *checker.ServedRequest, stream bool, random *rand.Rand) (message json.RawMessage, err error) {
	user, err := json.Marshal(map[string]string{"role": "user", "content": strings.TrimSpace(r.Text + " " + r.Planted)})
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	d.messages = append(d.messages, user)
	body, err := json.Marshal(map[string]any{"model": c.run, "messages": d.messages, "max_tokens": 12, "stream": stream})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	// Nobody may answer the user who is forgotten after the user has ended.
	tries, leave := 0, random.IntN(3) == 0 && d.user != forgottenUser
	send := func() (checker.ServedReply, error) {
		for ; ; tries++ {
			reply, raw, err := c.sendOnce(ctx, d, body, tries, stream)
			var refused *refusedError
			if err == nil {
				message = raw
				return reply, nil
			}
			if errors.As(err, &refused) {
				return reply, fmt.Errorf("request %s of client %s: %w", r.Text, d.client.name, err)
			}
			if leave {
				return checker.ServedReply{}, nil
			}
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return reply, err
			}
		}
	}
	if r.Reply, err = send(); err != nil || r.Reply.ID == "" || random.IntN(4) > 0 {
		return message, err
	}
	tries++ // as if the reply had not come
	leave = false
	first := message
	again, err := send()
	r.Again = append(r.Again, again)
	return first, err
}

// refusedError is an answer that sending again does not change.
type refusedError struct {
	status int
	body   string
}

func (e *refusedError) Error() string { return fmt.Sprintf("status %d: %.300s", e.status, e.body) }

// final reports whether a status stays the same if the request is sent again.
func final(status int) bool {
	return status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// sendOnce sends a request to a gateway, and reads the whole reply.
func (c *clients) sendOnce(ctx context.Context, d *dialog, body []byte, tries int, stream bool) (checker.ServedReply, json.RawMessage, error) {
	header := map[string]string{"X-Fulgurite-Conversation": d.name, "X-Fulgurite-User": d.user, "X-Fulgurite-Consent": d.consent}
	if tries > 0 {
		header["X-Stainless-Retry-Count"] = strconv.Itoa(tries)
	}
	response, err := c.post(ctx, "/v1/chat/completions", d.client.key, body, header)
	if err != nil {
		return checker.ServedReply{}, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	_, number, _ := strings.Cut(response.Header.Get("X-Fulgurite-Version"), "@")
	version, _ := strconv.Atoi(number) // refusals have none
	if stream && response.StatusCode == http.StatusOK {
		reply, err := readStream(response.Body)
		reply.Version = version
		return reply, nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return checker.ServedReply{}, nil, fmt.Errorf("read reply: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		if final(response.StatusCode) {
			err = &refusedError{response.StatusCode, string(text)}
		} else {
			err = fmt.Errorf("status %d: %.300s", response.StatusCode, text)
		}
		return checker.ServedReply{}, nil, err
	}
	var reply struct {
		ID      string
		Choices []struct{ Message json.RawMessage }
	}
	var said struct{ Content string }
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Choices) != 1 {
		return checker.ServedReply{}, nil, fmt.Errorf("read reply %.300s: %w", text, err)
	}
	err = json.Unmarshal(reply.Choices[0].Message, &said)
	return checker.ServedReply{ID: reply.ID, Content: said.Content, Version: version}, reply.Choices[0].Message, err
}

// readStream reads a streamed reply. Without its last event it has not come whole.
func readStream(in io.Reader) (reply checker.ServedReply, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return reply, nil
		}
		var chunk struct {
			ID      string
			Error   json.RawMessage
			Choices []struct{ Delta struct{ Content string } }
		}
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			return reply, fmt.Errorf("read event %.300s: %w", data, err)
		}
		reply.ID = chunk.ID
		for _, choice := range chunk.Choices {
			reply.Content += choice.Delta.Content
		}
	}
	return reply, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// post sends a request to one of the gateways, in turn.
func (c *clients) post(ctx context.Context, path, key string, body []byte, header map[string]string) (*http.Response, error) {
	gateway := c.gateways[int(c.turns.Add(1))%len(c.gateways)]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	return response, nil
}

// judgment is feedback that is still to be given.
type judgment struct {
	checker.GivenFeedback
	key    string
	twice  bool
	reward float64 // of other feedback under the same id, after it; 0 is none
}

// judgments returns the feedback on a reply, or on the conversation so far if that has a name:
// right feedback in most cases, and now and then some that has to be refused.
func (c *clients) judgments(d *dialog, r checker.ServedRequest, random *rand.Rand) []judgment {
	of := c.all[slices.IndexFunc(c.all, func(one *servingClient) bool { return one.name == r.Client })]
	g := judgment{key: of.key, GivenFeedback: checker.GivenFeedback{
		Client: of.name, ID: fmt.Sprintf("on-%d-%d", r.Dialog, r.Turn), Reply: r.Reply.ID, Reward: []float64{1, 0.5, -0.5, -1}[random.IntN(4)],
	}}
	if c.experiment {
		g.Reward = taste(r.Reply.Version) * []float64{1, 0.5}[random.IntN(2)]
	}
	switch {
	case d.user == forgottenUser:
		g.User, g.Comment = forgottenUser, forgottenWord+g.ID
	case c.experiment && of.judges && r.Consents && d.name == "" && random.IntN(6) == 0 && c.speak(false):
		// Nobody else judges the reply, so what was learned from it goes with this.
		g.User, g.Comment = forgottenUser, forgottenWord+g.ID
		return []judgment{g}
	case c.experiment && random.IntN(4) == 0:
		g.Comment = "call " + secret(r.Dialog, r.Turn)
	}
	if d.name != "" && random.IntN(4) == 0 {
		g.Reply, g.Conversation, g.Dialog = "", d.name, d.number
	}
	wrong := func(id string, key, client string, want int) judgment {
		out := g
		out.ID, out.key, out.Client, out.Want = id+g.ID, key, client, want
		return out
	}
	other := c.all[(slices.Index(c.all, of)+1)%2] // one of the first two, who may judge
	switch {
	case !of.judges:
		g.Want = http.StatusForbidden
	case !r.Consents:
		g.Want = http.StatusNotFound
	}
	switch n := random.IntN(10); {
	case n == 0:
		return nil
	case n == 1:
		return []judgment{g, wrong("forged-", forged(of.key), "", http.StatusUnauthorized)}
	case n == 2:
		out := wrong("unknown-", of.key, of.name, http.StatusNotFound)
		out.Reply, out.Conversation = "chatcmpl-no-such-reply", ""
		if !of.judges {
			out.Want = http.StatusForbidden
		}
		return []judgment{g, out}
	case n == 3 && other != of:
		return []judgment{g, wrong("foreign-", other.key, other.name, http.StatusNotFound)}
	case n == 4 && g.Want == 0:
		g.reward = -g.Reward
	case n < 7:
		g.twice = true
	}
	return []judgment{g}
}

// forged returns what looks like a key and is none.
func forged(key string) string { return key[:max(0, len(key)-3)] + "777" }

// giveLater gives feedback after a time, until it is answered, and notes the answers.
func (c *clients) giveLater(ctx context.Context, g judgment, after time.Duration) error {
	if err := pause(ctx, after); err != nil {
		return err
	}
	times := 1
	if g.twice {
		times = 2
	}
	for range times {
		status, err := c.give(ctx, g)
		if err != nil {
			return err
		}
		g.Statuses = append(g.Statuses, status)
		if g.Answered.IsZero() {
			g.Answered = time.Now()
		}
	}
	c.note(g.GivenFeedback)
	if g.reward == 0 {
		return nil
	}
	g.Reward, g.Statuses, g.Want = g.reward, nil, http.StatusConflict
	status, err := c.give(ctx, g)
	g.Statuses = []int{status}
	c.note(g.GivenFeedback)
	return err
}

func (c *clients) note(g checker.GivenFeedback) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feedback = append(c.feedback, g)
}

// give sends feedback until a gateway answers, and returns the status.
func (c *clients) give(ctx context.Context, g judgment) (int, error) {
	said := map[string]any{"id": g.ID, "reward": g.Reward, "reply": g.Reply}
	if g.Reply == "" {
		said = map[string]any{"id": g.ID, "reward": g.Reward, "conversation": g.Conversation, "model": c.run}
	}
	if g.User != "" {
		said["user"] = g.User
	}
	if g.Comment != "" {
		said["comment"] = g.Comment
	}
	body, err := json.Marshal(said)
	if err != nil {
		return 0, fmt.Errorf("encode feedback: %w", err)
	}
	for {
		response, err := c.post(ctx, "/v1/feedback", g.key, body, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err == nil && final(response.StatusCode) {
				return response.StatusCode, nil
			}
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// noted returns what the clients have noted so far.
func (c *clients) noted() ([]checker.ServedRequest, []checker.GivenFeedback) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests), slices.Clone(c.feedback)
}
