package traffic_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/traffic"
)

func TestAReplyInTheShadowIsReadBesideTheOneThatTheClientGot(t *testing.T) {
	t.Parallel()
	s := recorded(t)
	second := time.Unix(1, 0).UTC()
	for _, r := range []record.ShadowReply{
		{Run: "demo", Policy: "main", Candidate: 4, CallID: "chatcmpl-b", Error: "bad row", At: second.Add(time.Second)},
		{Run: "demo", Policy: "main", Candidate: 4, CallID: "chatcmpl-a", Reply: "4", Tokens: 2, Finish: "length", Duration: 1500 * time.Millisecond, At: second},
		{Run: "demo", Policy: "main", Candidate: 4, CallID: "chatcmpl-gone", Reply: "4", Finish: "stop", At: second},
	} {
		_, err := s.PutShadowReply(t.Context(), r)
		require.NoError(t, err)
	}
	row, err := traffic.Source{Store: s}.Row(t.Context(), "demo", 0)
	require.NoError(t, err)
	got, err := traffic.Pairs(t.Context(), s, record.ShadowQuery{Run: "demo", Policy: "main"})
	require.NoError(t, err)
	want := []traffic.Pair{
		{
			Run: "demo", Conversation: "demo/served-0/0/0/1", Version: 3, Reply: row.Replies[0], Tokens: 1,
			Shadow: traffic.Shadow{Candidate: 4, Text: "4", Finish: "length", Tokens: 2, Seconds: 1.5, At: "1970-01-01T00:00:01Z"},
		},
		{
			Run: "demo", Conversation: "demo/served-0/0/0/1", Version: 3, Reply: row.Replies[1], Tokens: 1,
			Shadow: traffic.Shadow{Candidate: 4, Error: "bad row", At: "1970-01-01T00:00:02Z"},
		},
	}
	require.Empty(t, cmp.Diff(want, got))
}
