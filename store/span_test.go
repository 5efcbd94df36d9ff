package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestSpansStandOnceHoweverOftenTheyAreSent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		tool := record.Span{
			Address: a, Trace: "t1", ID: "b", Parent: "a", Kind: record.ToolSpan, Name: "calculator", Started: noon.Add(time.Second), Ended: noon.Add(2 * time.Second),
			Failed: true, Message: "division by zero\x00", Tool: "calculator", ToolCallID: "call_1", Attributes: map[string]any{"input": "1/0", "n": 1.5},
		}
		call := record.Span{Address: a, Trace: "t1", ID: "a", Kind: record.ModelSpan, Name: "chat", Started: noon, Ended: noon.Add(time.Second), CallID: "chatcmpl-1", Agent: "writer"}
		other := record.Span{Address: a, Trace: "t2", ID: "a", Kind: record.OtherSpan, Started: noon.Add(time.Minute)}
		require.NoError(t, s.PutSpans(t.Context(), a, []record.Span{tool, call}))
		require.NoError(t, s.PutSpans(t.Context(), a, []record.Span{call, other}))
		changed := call
		changed.Name = "another"
		require.NoError(t, s.PutSpans(t.Context(), a, []record.Span{changed}), "an exporter can't take back what it sent")
		tool.Message = "division by zero\uFFFD"
		got, err := s.Spans(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Span{call, tool, other}, got)
		none, err := s.Spans(t.Context(), begin(t, s, rollout(0, 1)))
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestSpansOfABatchStandTogether(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		bad := record.Span{Trace: "t", ID: "2", Attributes: map[string]any{"x": math.NaN()}}
		require.Error(t, s.PutSpans(t.Context(), a, []record.Span{{Trace: "t", ID: "1"}, bad}))
		got, err := s.Spans(t.Context(), a)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

func TestLateSpansAreTakenAndThoseOfNobodyAreNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
		require.NoError(t, s.PutSpans(t.Context(), a, []record.Span{{Trace: "t", ID: "1"}}))
		got, err := s.Spans(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, got, 1)
		a.Attempt = 7
		require.ErrorIs(t, s.PutSpans(t.Context(), a, []record.Span{{Trace: "t", ID: "1"}}), record.ErrNotFound)
	})
}

func TestExportersThatSendAtOnceLoseNoSpan(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		var g errgroup.Group
		for i := range 8 {
			g.Go(func() error {
				var spans []record.Span
				for k := range 20 { // the next goroutine puts half of them as well
					spans = append(spans, record.Span{Trace: "t", ID: fmt.Sprint(10*i + k)})
				}
				return s.PutSpans(t.Context(), a, spans)
			})
		}
		require.NoError(t, g.Wait())
		got, err := s.Spans(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, got, 90)
	})
}
