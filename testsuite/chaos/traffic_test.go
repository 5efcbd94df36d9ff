package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// servingFake answers requests and feedback as gateways do that record what consents. It
// fails every third request, and breaks every fifth off in the middle.
type servingFake struct {
	mu      sync.Mutex
	count   int
	replies map[string]string // ids, by the last message
	retries map[string]int    // the greatest number of tries, by the last message
	judged  map[string]int    // how often feedback was accepted, by its id
}

func (f *servingFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.count%3 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/v1/feedback" {
		var in struct{ ID string }
		_ = json.Unmarshal(body, &in)
		f.judged[in.ID]++
		w.WriteHeader(http.StatusCreated)
		return
	}
	var in struct {
		Stream   bool
		Messages []struct{ Content string }
	}
	_ = json.Unmarshal(body, &in)
	last := in.Messages[len(in.Messages)-1].Content
	if f.replies[last] == "" {
		f.replies[last] = fmt.Sprintf("reply-%d", len(f.replies))
	}
	tries := 0
	_, _ = fmt.Sscan(r.Header.Get("X-Stainless-Retry-Count"), &tries)
	f.retries[last] = max(f.retries[last], tries)
	id := f.replies[last]
	text := fmt.Sprintf(`{"id":%q,"choices":[{"message":{"role":"assistant","content":"hello there"}}]}`, id)
	if in.Stream {
		text = fmt.Sprintf("data: {\"id\":%q,\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: {\"id\":%q,\"choices\":[{\"delta\":{\"content\":\" there\"}}]}\n\ndata: [DONE]\n\n", id, id)
	}
	if f.count%5 == 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		text = text[:len(text)/2]
	}
	_, _ = io.WriteString(w, text)
}

func TestClientsNoteWhatCameWhole(t *testing.T) {
	t.Parallel()
	fake := &servingFake{replies: map[string]string{}, retries: map[string]int{}, judged: map[string]int{}}
	gateway := httptest.NewServer(fake)
	defer gateway.Close()
	c := &clients{run: "run", gateways: []string{gateway.URL, gateway.URL}, all: servingClients()[:1], http: gateway.Client()}
	random := rand.New(rand.NewPCG(1, 2))
	again := 0
	for n := range 30 {
		d := &dialog{number: n, client: c.all[0], consents: true}
		r := checker.ServedRequest{Text: fmt.Sprintf("(%d/0)", n), Client: "ada", Consents: true, Dialog: n}
		message, err := c.ask(t.Context(), d, &r, n%2 == 1, random)
		require.NoError(t, err)
		if r.Reply.ID == "" { // it gave up
			continue
		}
		require.Equal(t, checker.ServedReply{ID: fake.replies[r.Text], Content: "hello there"}, r.Reply)
		if n%2 == 0 {
			require.JSONEq(t, `{"role":"assistant","content":"hello there"}`, string(message))
		}
		for _, a := range r.Again {
			again++
			require.Equal(t, r.Reply, a)
			require.Positive(t, fake.retries[r.Text], "a request that is sent again says so")
		}
	}
	require.Positive(t, again)

	g := judgment{GivenFeedback: checker.GivenFeedback{Client: "ada", ID: "on-1", Reply: "reply-1", Reward: 1}, key: "k", twice: true}
	require.NoError(t, c.giveLater(t.Context(), g, 0))
	_, given := c.noted()
	require.Equal(t, []int{http.StatusCreated, http.StatusCreated}, given[0].Statuses)
	require.Equal(t, 2, fake.judged["on-1"])
}

func TestAStreamWithoutItsEndHasNotComeWhole(t *testing.T) {
	t.Parallel()
	_, err := readStream(strings.NewReader("data: {\"id\":\"a\",\"choices\":[]}\n\n"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = readStream(strings.NewReader("data: {\"error\":{\"message\":\"gone\"}}\n\ndata: [DONE]\n\n"))
	require.ErrorContains(t, err, "gone")
}

func TestClientsGiveEveryKindOfFeedback(t *testing.T) {
	t.Parallel()
	c := &clients{all: servingClients()}
	random := rand.New(rand.NewPCG(1, 2))
	wants, doubled, changed, whole := map[int]int{}, 0, 0, 0
	for n := range 1000 {
		r := checker.ServedRequest{Client: c.all[n%3].name, Dialog: n, Consents: n%2 == 0, Reply: checker.ServedReply{ID: "r"}}
		d := &dialog{number: n}
		if n%5 == 0 {
			d.name = "named"
		}
		for _, g := range c.judgments(d, r, random) {
			if g.Reply == "" {
				whole++
				require.Equal(t, "named", g.Conversation)
			}
			wants[g.Want]++
			if g.twice {
				doubled++
			}
			if g.reward != 0 {
				changed++
				require.Zero(t, g.Want)
			}
		}
	}
	for _, status := range []int{0, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		require.Positive(t, wants[status], status)
	}
	require.Positive(t, doubled)
	require.Positive(t, changed)
	require.Positive(t, whole)
}

func TestTrafficHasTwoGatewaysToKill(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-scenarios", "traffic"}, t.Output())
	require.NoError(t, err)
	require.False(t, o.compares())
	victims, err := o.victims()
	require.NoError(t, err)
	require.Contains(t, victims, processes.Gateway2)
	require.Contains(t, victims, processes.Postgres)
	s, err := trafficSpec(o.scenarios[0], o)
	require.NoError(t, err)
	require.NoError(t, s.Validate())

	o, err = parse([]string{"-scenarios", "plain"}, t.Output())
	require.NoError(t, err)
	require.True(t, o.compares())
	victims, err = o.victims()
	require.NoError(t, err)
	require.NotContains(t, victims, processes.Gateway2)
}
