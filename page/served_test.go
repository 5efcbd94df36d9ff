package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// listed returns the numbers of the conversations that a list links to, in order.
func listed(t testing.TB, body string) (out []string) {
	t.Helper()
	for _, l := range links(t, body) {
		if found := regexp.MustCompile(`^/runs/used/served-0/(\d+)/0/1$`).FindStringSubmatch(l); found != nil {
			out = append(out, found[1])
		}
	}
	return out
}

func TestConversationsAreListedAndFiltered(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "conversations")
	at := newUsed(t, "plain").serve(nil).URL
	body := shown.get(at, "/runs/used/conversations")
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, listed(t, body), "the newest first")
	text := texts(t, body)
	require.Contains(t, text, "5 , 1 unused +0.417 of 3", "the mean of 1, 0.5 and -0.25")
	require.Contains(t, text, "redacted 3 candidate a11a11a11a11 1 1 , 1 unused −1.000")
	require.Contains(t, text, "2 control b0bb0bb0bb0b")
	require.NotContains(t, text, ann, "a hash is shortened")
	for query, want := range map[string][]string{
		"version=2": {"2"}, "version=7": nil, "label=kind": {"0"}, "label=own": {"4"}, "label=kin": nil, "user=a11": {"1", "0"}, "user=+B0BB": {"4", "2"}, "user=" + ann: {"1", "0"}, "user=%25": nil,
		"feedback=1": {"4", "1", "0"}, "feedback=1&user=a11&version=3": {"1"}, "before=2": {"1", "0"}, "before=x": {"4", "3", "2", "1", "0"}, "label=" + url.QueryEscape(`"'<%`): nil,
	} {
		body, reply := get(t, at+"/runs/used/conversations?"+query)
		require.Equal(t, http.StatusOK, reply.StatusCode, query)
		require.Equal(t, want, listed(t, body), query)
	}
	for _, query := range []string{"version=x", "version=-1", "label=nobody", "before=2"} {
		shown.get(at, "/runs/used/conversations?"+query)
	}
	body, _ = get(t, at+"/runs/used/conversations?user=a11&label=kind&feedback=1&version=0")
	for _, want := range []string{`name="version" min="0" value="0"`, `name="label" value="kind"`, `name="user" value="a11"`, `value="1" checked`} {
		require.Contains(t, body, want, "the form has what was asked for")
	}
}

func TestTheListSaysWhatIsRecordedNow(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "conversations_recorded")
	r := newUsed(t, "plain")
	require.NoError(t, r.store.PutTrafficSetting(t.Context(), "used", spec.RecordConsent, "ada", "asked"))
	at := r.serve(nil).URL
	require.Contains(t, texts(t, shown.get(at, "/runs/used/conversations")), "recorded with consent, since traffic.record was set")
}

// counting counts the reads of a page, and the most conversations that it asked for.
type counting struct {
	*store.Store
	reads, most atomic.Int64
}

func (c *counting) Conversations(ctx context.Context, q record.ConversationQuery) ([]record.ConversationSummary, error) {
	c.reads.Add(1)
	c.most.Store(max(c.most.Load(), int64(q.Limit)))
	if q.Limit == 0 {
		c.most.Store(1 << 30)
	}
	return c.Store.Conversations(ctx, q)
}

func (c *counting) Conversation(ctx context.Context, run string, number int) (record.Conversation, error) {
	c.reads.Add(1)
	return c.Store.Conversation(ctx, run, number)
}

func (c *counting) FeedbackLabels(ctx context.Context, run string, numbers []int) (map[int][]string, error) {
	c.reads.Add(1)
	return c.Store.FeedbackLabels(ctx, run, numbers)
}

func (c *counting) LatestFeedback(ctx context.Context, run string, conversation int, replies []string, most int) ([]record.Feedback, map[string]int, error) {
	c.reads.Add(1)
	return c.Store.LatestFeedback(ctx, run, conversation, replies, most)
}

func TestAPageOfConversationsIsReadAtOnce(t *testing.T) {
	t.Parallel()
	r := newUsed(t, "plain")
	for number := 5; number < 120; number++ {
		r.talk(record.Conversation{User: bob}, 1, false)
	}
	c := &counting{Store: r.store}
	p, err := page.New(page.Options{Records: c, Blobs: r.blobs, Codecs: dialog.Named, Poll: time.Millisecond, Patience: time.Hour})
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	var all []string
	path := "/runs/used/conversations?user=b0bb"
	for pages := 1; path != ""; pages++ {
		c.reads.Store(0)
		body, _ := get(t, server.URL+path)
		require.EqualValues(t, 2, c.reads.Load(), "conversations and labels are one query each")
		all = append(all, listed(t, body)...)
		path = ""
		for _, l := range links(t, body) {
			if strings.HasPrefix(l, "?") {
				path = "/runs/used/conversations" + l
				require.Contains(t, l, "user=b0bb", "the filter stays")
			}
		}
		require.LessOrEqual(t, pages, 3)
	}
	require.Len(t, all, 117)
	require.Len(t, slices.Compact(slices.Clone(all)), 117, "none twice")
	require.EqualValues(t, 51, c.most.Load(), "no page reads them all")
}

func TestFeedbackStandsBesideItsReply(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "conversation")
	r := newUsed(t, "plain")
	at := r.serve(nil).URL
	body := shown.get(at, "/runs/used/served-0/0/0/1")
	calls := strings.Split(body, `<article class="call`)
	require.Len(t, calls, 4)
	head, first, second, third := texts(t, calls[0]), texts(t, calls[1]), texts(t, calls[2]), texts(t, calls[3])
	require.Contains(t, head, "Feedback on the whole conversation +0.500 kind")
	require.Contains(t, first, "+1.000 thumb up kind plain plain user a11a11a11a11 · key my-app")
	require.Contains(t, first, "step 1 learned from it")
	require.NotContains(t, first, "corrected")
	require.Contains(t, second, "corrected, see below")
	require.Contains(t, second, "corrected to what it says")
	require.Equal(t, 1, strings.Count(calls[2], `class="diff"`))
	require.Contains(t, calls[2], "<ins>first line</ins>")
	require.NotContains(t, calls[2], "<del>", "plain is a line of both")
	require.Contains(t, third, "−0.250 better than chatcmpl-2-0 user b0bb0bb0bb0b")
	require.Contains(t, links(t, body), "/runs/used/reply?id=chatcmpl-2-0")
	require.NotContains(t, body, "End of attempt")

	body = shown.get(at, "/runs/used/served-0/1/0/1")
	text := texts(t, body)
	require.Contains(t, text, "candidate of an experiment redacted")
	require.Contains(t, text, "reply plain", "the text of a reply without tokens")
	require.Contains(t, text, "rewritten, so nothing is trained on it")
	require.Contains(t, links(t, body), "/runs/used/experiments#version-3")
	body, _ = get(t, at+"/runs/used/served-0/3/0/1")
	require.NotContains(t, body, "judgment")

	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		require.NoError(t, err)
		reply, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		return reply.StatusCode, reply.Header.Get("Location")
	}
	for path, want := range map[string]string{
		"/runs/used/reply?id=chatcmpl-0-2": "/runs/used/served-0/0/0/1?call=2#call-2", "/runs/used/served-0": "/runs/used/conversations", "/runs/used/served-0/2": "/runs/used/served-0/2/0/1",
		"/runs/used/served-0/x": "/runs/used/conversations",
	} {
		code, to := get(path)
		require.Equal(t, http.StatusSeeOther, code, path)
		require.Equal(t, want, to, path)
	}
	for _, path := range []string{"/runs/used/reply?id=chatcmpl-9-9", "/runs/used/reply", "/runs/other/reply?id=chatcmpl-0-2"} {
		code, _ := get(path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

func TestAConversationThatWasRemovedIsSaidToBe(t *testing.T) {
	t.Parallel()
	r := newUsed(t, "plain")
	require.NoError(t, r.store.RemoveConversation(t.Context(), "used", 4))
	at := r.serve(nil).URL
	body, reply := get(t, at+"/runs/used/served-0/4/0/1")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
	require.Contains(t, texts(t, body), "Conversation 4 of run used was removed")
	for _, path := range []string{"/runs/used/served-0/9/0/1", "/runs/used/served-0/0/1/1", "/runs/used/served-0/0/0/2"} {
		body, reply = get(t, at+path)
		require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
		require.Contains(t, texts(t, body), "has no recorded conversation", path)
	}
	body, _ = get(t, at+"/runs/used/conversations")
	require.Equal(t, []string{"3", "2", "1", "0"}, listed(t, body))
	body, _ = get(t, at+"/runs/used/conversations?label=own")
	require.Empty(t, listed(t, body))
	_, reply = get(t, at+"/runs/used/reply?id=chatcmpl-4-0")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
}

func TestACorrectionIsComparedWithAReplyThatIsShownInPart(t *testing.T) {
	t.Parallel()
	r := newUsed(t, "plain")
	c, _, err := r.store.BeginConversation(t.Context(), record.Conversation{Run: r.name, Policy: model.DefaultPolicy}, record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName, Temperature: 1})
	require.NoError(t, err)
	call := r.call(c.Address(), 0, -1, nil)
	call.ID, call.Served = "long", &record.ServedCall{}
	call.Completion = slices.Repeat(call.Completion[:1], 10_000)
	call.Logprobs = make([]float32, len(call.Completion))
	require.NoError(t, r.store.AppendCall(t.Context(), &call))
	r.say(record.Feedback{ID: "of the long one", Conversation: c.Number, CallID: "long", CorrectedText: &r.text})
	body, _ := get(t, fmt.Sprintf("%s/runs/used/served-0/%d/0/1", r.serve(nil).URL, c.Number))
	require.Contains(t, body, "corrected to what it says")
	require.NotContains(t, body, "<ins>")
}

func TestMuchFeedbackIsShownInPart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it writes much and shows nothing of goroutines")
	}
	r := newUsed(t, "plain")
	long := strings.Repeat("<b>a long line & more words</b>\n", 8<<10)
	for i := range 12 {
		r.say(record.Feedback{ID: fmt.Sprint("long ", i), Conversation: 0, CallID: "chatcmpl-0-2", CorrectedText: lines(fmt.Sprint(i), long), Comment: long[:16<<10], Labels: []string{"a", "b", "c", "d", "e", "f", "g", "h"}})
		r.say(record.Feedback{ID: fmt.Sprint("all ", i), Conversation: 0, CorrectedText: &long, Comment: fmt.Sprint("comment ", i)})
	}
	body, _ := get(t, r.serve(nil).URL+"/runs/used/served-0/0/0/1")
	require.Less(t, len(body), maxBytes)
	require.Less(t, len(elements(t, body)), maxElements)
	text := texts(t, body)
	require.Contains(t, text, "5 earlier pieces of feedback are not shown", "8 of 13 about the reply are")
	require.Contains(t, text, "comment 11")
	require.NotContains(t, text, "comment 3 ", "the newest are shown")
	require.Contains(t, text, "+2")
	require.Contains(t, text, "the page has no room for the text")
	require.NotContains(t, text, "The text is empty")
	require.Contains(t, text, "fulgurite traffic used 0")
}

func TestExperimentsAreShownWithTheirResults(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "experiments")
	r := newUsed(t, "plain")
	body := shown.get(r.serve(nil).URL, "/runs/used/experiments")
	text := texts(t, body)
	require.Regexp(t, `Version 3 against version 2 running .* no interval yet.*Version 2 against version 0 promoted .*\+0\.200 \+0\.133 to \+0\.267.*Version 1 against version 0 withdrawn .*−0\.200 −0\.267 to −0\.133`, text)
	require.Contains(t, text, "candidate 0.700 200 200 200.0 control 0.500 200 200 200.0")
	require.Contains(t, body, `aria-label="Difference of the candidates&#39; means from those of their controls: 2 against 0 +0.200, from +0.133 to +0.267; 1 against 0 −0.200, from −0.267 to −0.133"`)
	require.Contains(t, body, `data-every="2000"`)

	require.NoError(t, r.store.PutExperimentResult(t.Context(), "used", model.DefaultPolicy, 3, json.RawMessage(`{"difference":"<b>"}`)))
	require.NoError(t, r.store.EndExperiment(t.Context(), record.Experiment{Run: "used", Policy: model.DefaultPolicy, Candidate: 3, Status: record.ExperimentEnded, Reason: "the run ends"}))
	for candidate := 10; candidate < 40; candidate++ {
		r.compared(candidate, 3, record.ExperimentPromoted, 0.1)
	}
	at := r.serve(nil).URL
	body, _ = get(t, at+"/runs/used/experiments")
	require.Equal(t, 20, strings.Count(body, `class="card experiment"`))
	require.NotContains(t, body, "data-every")
	require.Contains(t, links(t, body), "?before=20")
	body, _ = get(t, at+"/runs/used/experiments?before=20")
	require.Equal(t, 13, strings.Count(body, `class="card experiment"`))
	require.Contains(t, texts(t, body), "Its result can't be read")
	body, _ = get(t, at+"/runs/used/experiments?before=1")
	require.Contains(t, texts(t, body), "No experiment is older.")
}

func TestSegmentsSayWhatStepsLearnedFrom(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "segments")
	r := newUsed(t, "plain")
	numbers, calls := make([]int, 250), make([]int, 250)
	for i := range numbers {
		numbers[i], calls[i] = i, i
	}
	r.learn(record.Segment{Step: 4, Parent: 2, Objective: spec.ObjectiveSupervised, Feedback: []string{"equal"}, Conversations: numbers, Calls: calls, Replies: 1})
	at := r.serve(nil).URL
	text := texts(t, shown.get(at, "/runs/used/segments"))
	require.Contains(t, text, "4 2 supervised 1 reply 250 1")
	require.Contains(t, text, "2 0 preference 1 pair 2 2 9 the reply was sampled greedily: 7; plain: 2")
	body := shown.get(at, "/runs/used/train-2")
	require.Contains(t, texts(t, body), "Learned from 1 pair of 2 conversations")
	require.Equal(t, []string{"0", "4"}, listed(t, body))
	require.Subset(t, links(t, body), []string{"/runs/used/train-1", "/runs/used/train-3", "/runs/used/versions/2", "/runs/used/versions/0"})
	var all []string
	for path := "/runs/used/train-4"; path != ""; {
		body, _ := get(t, at+path)
		all = append(all, listed(t, body)...)
		path = ""
		for _, l := range links(t, body) {
			if l == fmt.Sprintf("?from=%d#conversations", len(all)) {
				path = "/runs/used/train-4" + strings.TrimSuffix(l, "#conversations")
			}
		}
	}
	require.Len(t, all, 250)
	body, _ = get(t, at+"/runs/used/train-4")
	require.NotContains(t, links(t, body), "/runs/used/train-5")
	_, reply := get(t, at+"/runs/used/train-9")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
	body = shown.get(at, "/runs/used")
	require.Contains(t, texts(t, body), "Replies or pairs learned from 6 of 254 conversations")
	require.Contains(t, texts(t, body), "mean value of what the step learned from")
	require.Contains(t, texts(t, body), "accounted for: no reply and no feedback was used twice")
	require.NotContains(t, texts(t, body), "Every prompt")
}
