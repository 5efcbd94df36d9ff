package decode_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var architecture = model.Architecture{VocabSize: 16, MaxPositions: 8}

func itself(q *decode.Request) *decode.Request { return q }

// start returns a front whose owner gives each request of a batch of the given size one
// token a step: the number of tokens before it.
func start(size int) *decode.Front[*decode.Request] {
	f := decode.NewFront(architecture, itself)
	f.Own(func() {
		var batch []*decode.Request
		for {
			if len(batch) == 0 {
				<-f.Changed()
			}
			var closed bool
			batch, closed = f.Take(batch, size-len(batch))
			rest := batch[:0]
			for _, q := range batch {
				switch {
				case closed:
					q.Err = decode.ErrClosed
				case !q.IsAbandoned():
					q.Accept(int32(len(q.Completion.Tokens)), -1, false)
				}
				if q.Finished() || q.IsAbandoned() {
					q.End()
					continue
				}
				rest = append(rest, q)
			}
			if batch = rest; closed {
				return
			}
		}
	})
	return f
}

func TestRequestsBeyondTheBatchAreServed(t *testing.T) {
	t.Parallel()
	f := start(2)
	defer f.Close()
	errs := make(chan error, 100)
	for range cap(errs) {
		go func() {
			c, err := f.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
			if err == nil && len(c.Tokens) != 1 {
				err = errors.New("want one token")
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestTokensAreEmittedInOrderAndNoneAfterTheAnswer(t *testing.T) {
	t.Parallel()
	f := start(1)
	defer f.Close()
	var emitted []int32
	c, err := f.Decode(t.Context(), model.DecodeRequest{
		Prompt: []int32{1}, MaxTokens: 100, Stop: []int32{4}, Emit: func(token int32, _ float32) { emitted = append(emitted, token) },
	})
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 3, 4}, c.Tokens)
	require.Equal(t, "stop", c.Finish)
	require.Equal(t, c.Tokens, emitted)
}

func TestARequestEndsWithItsPositions(t *testing.T) {
	t.Parallel()
	f := start(1)
	defer f.Close()
	c, err := f.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2, 3}, MaxTokens: 100})
	require.NoError(t, err)
	require.Len(t, c.Tokens, 5)
	require.Equal(t, "length", c.Finish)
}

func TestACallerWhoLeavesAbandonsItsRequest(t *testing.T) {
	t.Parallel()
	f := decode.NewFront(architecture, itself)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := f.Decode(ctx, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
		left <- err
	}()
	<-f.Changed()
	taken, _ := f.Take(nil, 1)
	require.Len(t, taken, 1)
	require.False(t, taken[0].IsAbandoned())
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	require.True(t, taken[0].IsAbandoned())
}

func TestOwnersHearOfRequestsThatTheyLeft(t *testing.T) {
	t.Parallel()
	q := decode.NewQueue[int]()
	q.Return([]int{3})
	q.Return([]int{1, 2})
	<-q.Changed()
	taken, closed := q.Take(nil, 1)
	require.Equal(t, []int{1}, taken)
	require.False(t, closed)
	<-q.Changed() // two requests still wait, and no other may ever come
	taken, _ = q.Take(taken, 0)
	require.Equal(t, []int{1}, taken)
	q.Close()
	taken, closed = q.Take(taken, 0)
	require.Equal(t, []int{1, 2, 3}, taken)
	require.True(t, closed)
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	f := start(1)
	for want, r := range map[string]model.DecodeRequest{
		"no tokens":           {MaxTokens: 1},
		"token 0 is 16":       {Prompt: []int32{16}, MaxTokens: 1},
		"at most 0 tokens":    {Prompt: []int32{1}},
		"temperature is -1":   {Prompt: []int32{1}, MaxTokens: 1, Temperature: -1},
		"top_p is 2":          {Prompt: []int32{1}, MaxTokens: 1, TopP: 2},
		"the model has 8 pos": {Prompt: make([]int32, 8), MaxTokens: 1},
	} {
		_, err := f.Decode(t.Context(), r)
		require.ErrorContains(t, err, want)
	}
	_, err := f.Score(t.Context(), make([]int32, 4), make([]int32, 5))
	require.ErrorIs(t, err, model.ErrPromptTooLong)
	_, err = f.Score(t.Context(), []int32{1}, nil)
	require.ErrorIs(t, err, model.ErrRow)
	f.Close()
	_, err = f.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
	require.ErrorIs(t, err, decode.ErrClosed)
	f.Close() // a second Close does no harm
}
