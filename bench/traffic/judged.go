package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// judgedLoad is a load with feedback on a gateway in a process of its own.
type judgedLoad struct {
	arrivals
	length time.Duration
	// killEvery is the time from one kill of the gateway to the next; 0 kills it never.
	killEvery time.Duration
	// late is how long after a reply feedback comes at the latest.
	late time.Duration
}

// account is what the clients of a load sent and got.
type account struct {
	mu        sync.Mutex
	latencies []time.Duration
	requests  int
	failures  map[string]int     // by kind; each was sent again
	replies   map[string]string  // what was said, by the id of the reply
	changed   int                // requests with two different replies
	accepted  map[string]float64 // rewards, by the id of the feedback
	refused   map[string]bool    // ids
	answers   map[int]int        // to feedback, by status
	created   map[string]int     // how often feedback was answered as new, by id
	surprises []string           // answers that are wrong
}

func newAccount() *account {
	return &account{failures: map[string]int{}, replies: map[string]string{}, accepted: map[string]float64{}, refused: map[string]bool{}, answers: map[int]int{}, created: map[string]int{}}
}

// baseline is the longest time of the load without recording, which only shows what a request
// takes then.
const baseline = 2 * time.Minute

// measureJudged measures a load without recording and with it, prints what came of both, and
// fails if anything was lost or doubled.
func measureJudged(ctx context.Context, dir string, l judgedLoad) error {
	fmt.Println("| recording | kills | requests | sent again | p50 ms | p99 ms | max ms | lost | doubled | not received | gateway MiB | store MiB |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	var wrong []error
	for _, recording := range []model.Recording{model.RecordNothing, model.RecordAll} {
		of := l
		if recording == model.RecordNothing {
			of.length = min(l.length, baseline)
		}
		text, err := of.measure(ctx, filepath.Join(dir, "judged-"+recordingName(recording)+".db"), recording)
		if err != nil {
			wrong = append(wrong, err)
		}
		if recording == model.RecordAll {
			fmt.Print(text)
		}
	}
	return errors.Join(wrong...)
}

// measure measures one gateway, prints its row, and returns what else there is to say.
func (l judgedLoad) measure(ctx context.Context, file string, recording model.Recording) (string, error) {
	key, err := prepareStore(ctx, file)
	if err != nil {
		return "", err
	}
	g, err := startGateway(ctx, file, recording)
	if err != nil {
		return "", err
	}
	defer g.close()
	a := newAccount()
	clients := &judgingClients{load: l, key: key, url: g.url, recorded: recording == model.RecordAll, account: a, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: time.Minute}}
	ended := make(chan struct{})
	kills := make(chan int, 1)
	go func() { kills <- g.killEvery(ctx, l.killEvery, ended) }()
	err = clients.run(ctx)
	close(ended)
	killed := <-kills
	if err = errors.Join(err, g.failure()); err != nil {
		return "", err
	}
	memory := g.memory()
	if err := g.close(); err != nil {
		return "", err
	}
	size, err := storeSize(file)
	if err != nil {
		return "", err
	}
	var f findings
	if recording == model.RecordAll {
		if f, err = compare(ctx, file, a); err != nil {
			return "", err
		}
	}
	slices.Sort(a.latencies)
	again := 0
	for _, n := range a.failures {
		again += n
	}
	fmt.Printf("| %s | %d | %d | %d | %.2f | %.2f | %.2f | %d | %d | %d | %.0f | %.1f |\n", recordingName(recording), killed, a.requests, again,
		a.quantile(0.5), a.quantile(0.99), a.quantile(1), f.lost, f.doubled, f.unreceived, memory, size)
	if len(f.wrong) > 0 || len(a.surprises) > 0 || a.changed > 0 {
		f.wrong = append(f.wrong, a.surprises...)
		err = fmt.Errorf("%d requests had two replies; %s", a.changed, strings.Join(f.wrong[:min(len(f.wrong), 10)], "; "))
	}
	return a.text(f), err
}

// quantile returns a quantile of the sorted latencies in milliseconds.
func (a *account) quantile(share float64) float64 {
	if len(a.latencies) == 0 {
		return 0
	}
	at := min(len(a.latencies)-1, int(share*float64(len(a.latencies))))
	return float64(a.latencies[at]) / float64(time.Millisecond)
}

// text describes the failures and the feedback.
func (a *account) text(f findings) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nFailures after which a request was sent again, by kind: %v\n", a.failures)
	fmt.Fprintf(&out, "Feedback: %d accepted, %d on record, %d lost, %d refused; answers by status: %v\n", len(a.accepted), f.feedback, f.feedbackLost, len(a.refused), a.answers)
	return out.String()
}

// prepareStore makes the store of a load, and a key of its client.
func prepareStore(ctx context.Context, file string) (key string, err error) {
	db, err := store.Open(ctx, file, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Migrate(ctx); err != nil {
		return "", err
	}
	if _, _, err := db.CreateRun(ctx, record.Run{Name: run, WorkflowID: run, ExecutionID: "x", SpecDigest: "d"}); err != nil {
		return "", err
	}
	return db.CreateServingKey(ctx, record.ServingKey{Name: "clients", Scopes: []string{record.ScopeServe, record.ScopeFeedback}})
}

// judgingClients have conversations and judge replies.
type judgingClients struct {
	load     judgedLoad
	key, url string
	recorded bool // replies have to be on record, and can be judged
	account  *account
	http     *http.Client
}

// run sends requests at the rate of the load, and returns when all are answered, feedback too.
func (c *judgingClients) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	begun, n := time.Now(), 0
	for at, random := range c.load.conversations(c.load.length) {
		due := begun.Add(at)
		if sleep(ctx, time.Until(due)) != nil {
			break
		}
		number := n
		n++
		group.Go(func() {
			if err := c.converse(ctx, &group, random, number, due); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// converse has one conversation, whose first request is due at a time.
func (c *judgingClients) converse(ctx context.Context, group *sync.WaitGroup, random *rand.Rand, n int, due time.Time) error {
	var messages []map[string]string
	for turn := range turns {
		if turn > 0 {
			due = due.Add(c.load.interval(random, turnInterval))
		}
		if err := sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprintf("What do you say to question %d of conversation %d?", turn, n)})
		id, text, err := c.request(ctx, messages, 0)
		if err != nil {
			return err
		}
		c.account.add(func(a *account) {
			a.requests, a.latencies, a.replies[id] = a.requests+1, append(a.latencies, time.Since(due)), text
		})
		messages = append(messages, map[string]string{"role": "assistant", "content": text})
		if !c.recorded {
			continue
		}
		if random.IntN(20) == 0 { // as if the reply had not come
			again, _, err := c.request(ctx, messages[:len(messages)-1], 1)
			if err != nil {
				return err
			}
			if again != id {
				c.account.add(func(a *account) { a.changed++ })
			}
		}
		if random.IntN(2) == 0 {
			later := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			group.Go(func() { c.judge(ctx, later, fmt.Sprintf("on-%d-%d", n, turn), id) })
		}
	}
	return nil
}

// request sends a request until a reply comes.
func (c *judgingClients) request(ctx context.Context, messages []map[string]string, tries int) (id, text string, err error) {
	body, err := json.Marshal(map[string]any{"model": run, "messages": messages})
	if err != nil {
		return "", "", fmt.Errorf("encode request: %w", err)
	}
	for ; ; tries++ {
		status, answer, err := c.post(ctx, "/v1/chat/completions", c.key, body, tries)
		var reply struct {
			ID      string
			Choices []struct {
				Message struct{ Content string }
			}
		}
		switch {
		case err == nil && status == http.StatusOK && json.Unmarshal(answer, &reply) == nil && len(reply.Choices) == 1:
			return reply.ID, reply.Choices[0].Message.Content, nil
		case err == nil && status < http.StatusInternalServerError:
			return "", "", fmt.Errorf("ask: status %d: %.300s", status, answer)
		}
		kind := fmt.Sprint("status ", status)
		if err != nil {
			kind = failureKind(err)
		}
		c.account.add(func(a *account) { a.failures[kind]++ })
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return "", "", err
		}
	}
}

// failureKind names why nothing came.
func failureKind(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "refused"):
		return "connection refused"
	case strings.Contains(text, "reset"), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection broken off"
	default:
		return "other"
	}
}

// judge gives feedback on a reply, late. Some is given twice, some under a forged key, and
// some names a reply that there is not.
func (c *judgingClients) judge(ctx context.Context, random *rand.Rand, id, reply string) {
	if sleep(ctx, time.Duration(random.Int64N(int64(c.load.late)))) != nil {
		return
	}
	reward := float64(random.IntN(9)-4) / 4
	times := 1
	switch n := random.IntN(20); {
	case n < 2:
		c.refused(ctx, "forged-"+id, reply, forged(c.key), http.StatusUnauthorized)
	case n < 4:
		c.refused(ctx, "unknown-"+id, "chatcmpl-no-such-reply", c.key, http.StatusNotFound)
	case n < 9:
		times = 2
	}
	for i := range times {
		status, answer := c.give(ctx, id, reply, c.key, reward)
		c.account.add(func(a *account) {
			if a.accepted[id] = reward; status != http.StatusCreated && status != http.StatusOK {
				a.surprises = append(a.surprises, fmt.Sprintf("feedback %s got status %d at try %d: %.200s", id, status, i, answer))
			}
			if status != http.StatusCreated {
				return
			}
			if a.created[id]++; a.created[id] == 2 {
				a.surprises = append(a.surprises, fmt.Sprintf("feedback %s was taken as new twice", id))
			}
		})
	}
}

// forged returns what looks like a key and is none.
func forged(key string) string { return key[:len(key)-3] + "777" }

// refused gives feedback that has to be refused with a status.
func (c *judgingClients) refused(ctx context.Context, id, reply, key string, want int) {
	status, answer := c.give(ctx, id, reply, key, 1)
	c.account.add(func(a *account) {
		if a.refused[id] = true; status != want {
			a.surprises = append(a.surprises, fmt.Sprintf("feedback %s got status %d instead of %d: %.200s", id, status, want, answer))
		}
	})
}

// give gives feedback until it is answered.
func (c *judgingClients) give(ctx context.Context, id, reply, key string, reward float64) (status int, answer []byte) {
	body, err := json.Marshal(map[string]any{"id": id, "reply": reply, "reward": reward})
	for err == nil {
		status, answer, err := c.post(ctx, "/v1/feedback", key, body, 0)
		if err == nil && status < http.StatusInternalServerError {
			c.account.add(func(a *account) { a.answers[status]++ })
			return status, answer
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return 0, nil
}

// post sends a request and reads the whole answer.
func (c *judgingClients) post(ctx context.Context, path, key string, body []byte, tries int) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if tries > 0 {
		request.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(tries))
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("send: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func (a *account) add(f func(*account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

// sleep waits, or returns why it must not.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// findings are what the store has, compared with the account of the clients.
type findings struct {
	lost, doubled, unreceived int
	feedback, feedbackLost    int
	wrong                     []string
}

// compare reads the store after the load.
func compare(ctx context.Context, file string, a *account) (f findings, err error) {
	db, err := store.Open(ctx, file, nil)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	all, err := db.Conversations(ctx, record.ConversationQuery{Run: run})
	if err != nil {
		return f, err
	}
	ids, keys, feedback := map[string]bool{}, map[string]bool{}, map[string]float64{}
	for _, c := range all {
		calls, err := db.Calls(ctx, c.Address())
		if err != nil {
			return f, err
		}
		for _, call := range calls {
			if ids[call.ID] || keys[call.Key] {
				f.doubled++
				f.wrong = append(f.wrong, fmt.Sprintf("the request of reply %s is on record twice", call.ID))
			}
			ids[call.ID], keys[call.Key] = true, true
			if _, ok := a.replies[call.ID]; !ok {
				f.unreceived++
			}
		}
		said, err := db.Feedback(ctx, run, c.Number)
		if err != nil {
			return f, err
		}
		for _, one := range said {
			feedback[strings.TrimPrefix(one.ID, one.Key+"/")] = *one.Reward
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.replies)) {
		if !ids[id] {
			f.lost++
			f.wrong = append(f.wrong, fmt.Sprintf("reply %s is not on record", id))
		}
	}
	f.feedback = len(feedback)
	for _, id := range slices.Sorted(maps.Keys(a.accepted)) {
		if reward, ok := feedback[id]; !ok || reward != a.accepted[id] {
			f.feedbackLost++
			f.wrong = append(f.wrong, fmt.Sprintf("feedback %s is not on record as it was given", id))
		}
		delete(feedback, id)
	}
	for id := range feedback {
		f.wrong = append(f.wrong, fmt.Sprintf("feedback %s is on record and was not accepted", id))
	}
	return f, nil
}
