package retention_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
)

func TestConversationsAreKeptAsLongAsTheirRunSays(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, text := range map[string]string{"short": `{"traffic":{"retention_days":0.5}}`, "long": `{"traffic":{"retention_days":30}}`, "ever": `{"traffic":{"record":"all"}}`, "none": `{}`} {
		_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: name, Spec: []byte(text)})
		require.NoError(t, err)
		for range 2 { // the second one stays empty
			_, _, err = r.store.BeginConversation(t.Context(), record.Conversation{Run: name, Policy: "main"}, record.Terms{ClientSampling: true})
			require.NoError(t, err)
		}
		require.NoError(t, r.store.AppendCall(t.Context(), &record.Exchange{
			Call: record.Call{Address: record.ConversationAddress(name, 0), ID: "chatcmpl-" + name, Parent: -1, Policy: "main"}, Served: &record.ServedCall{},
		}))
	}
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		removed int
		left    []string
	}{
		{11 * time.Hour, 0, []string{"short", "long", "ever", "none"}},
		{13 * time.Hour, 2, []string{"long", "ever", "none"}},
		{23 * time.Hour, 0, []string{"long", "ever", "none"}},
		{25 * time.Hour, 3, []string{"long", "ever", "none"}}, // the empty ones
		{31 * 24 * time.Hour, 1, []string{"ever", "none"}},
		{1e5 * time.Hour, 0, []string{"ever", "none"}},
	} {
		e := retention.Expirer{Store: r.store, Now: func() time.Time { return now.Add(step.after) }, Log: zap.NewNop()}
		removed, err := e.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.removed, removed)
		for _, name := range step.left {
			_, err := r.store.Conversation(t.Context(), name, 0)
			require.NoError(t, err, name)
		}
	}
	_, err := r.store.Conversation(t.Context(), "short", 0)
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestConversationsThatAStepNeedsOutliveTheirTime(t *testing.T) {
	t.Parallel()
	r := open(t)
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "live", Spec: []byte(`{"traffic":{"retention_days":1,"train":{}}}`)})
	require.NoError(t, err)
	for number := range 2 {
		_, _, err := r.store.BeginConversation(t.Context(), record.Conversation{Run: "live", Policy: "main"}, record.Terms{ClientSampling: true})
		require.NoError(t, err)
		_, _, err = r.store.PutFeedback(t.Context(), record.Feedback{Run: "live", ID: string(rune('a' + number)), Conversation: number, Thumb: record.ThumbUp})
		require.NoError(t, err)
	}
	_, _, err = r.store.PutSegment(t.Context(), record.Segment{Run: "live", Policy: "main", Step: 1, Feedback: []string{"a"}, Conversations: []int{0}, Calls: []int{0}})
	require.NoError(t, err)
	e := retention.Expirer{Store: r.store, Now: func() time.Time { return time.Now().Add(48 * time.Hour) }, Log: zap.NewNop()}
	removed, err := e.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, removed, "step 1 is not finished")
	require.NoError(t, r.store.PutStep(t.Context(), record.Step{Run: "live", Policy: "main", Step: 1}))
	removed, err = e.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, removed)
}
