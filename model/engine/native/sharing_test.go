package native

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

func tinyCheckpoint() model.Checkpoint {
	a := model.Tiny(32)
	a.MaxPositions = 256
	return model.Checkpoint{Architecture: a, Weights: a.Init(1)}
}

// stepped is a batch that the test runs itself, without the goroutine of a decoder.
func stepped(t *testing.T) *batch {
	t.Helper()
	e := New(Options{Threads: 1})
	p, err := e.newPass(tinyCheckpoint())
	require.NoError(t, err)
	b := newBatch(p, 1, 128)
	t.Cleanup(func() {
		b.fail(decode.ErrClosed)
		b.threadPool.close()
		b.free()
	})
	return b
}

// join adds a request for one token. Its prompt has n tokens that are the same for every
// request, and then the tokens more.
func (b *batch) join(t *testing.T, n int, more ...int32) *request {
	t.Helper()
	prompt := make([]int32, n, n+len(more))
	for i := range prompt {
		prompt[i] = int32(i*i) % 32
	}
	r, err := decode.NewRequest(b.Architecture, model.DecodeRequest{Prompt: append(prompt, more...), MaxTokens: 1})
	require.NoError(t, err)
	q := newRequest(r)
	b.running = append(b.running, q)
	return q
}

// finishAll makes steps until no request is left, and returns how many positions they
// computed.
func (b *batch) finishAll() int {
	before := b.computed
	for len(b.running) > 0 {
		b.step()
	}
	return b.computed - before
}

func TestAPromptIsComputedOnceForAGroup(t *testing.T) {
	t.Parallel()
	for _, kept := range []int{0, 1, keptPages} {
		b := stepped(t)
		b.kept = kvcache.NewKept(b.pages, kept)
		for range 6 {
			b.join(t, 100)
		}
		require.Equal(t, 100+5, b.finishAll(), "each needs the last token's logits")
		if kept < keptPages {
			continue
		}
		b.join(t, 100)
		require.Equal(t, 1, b.finishAll())
		b.join(t, 90, 7, 7, 7)
		require.Equal(t, 3, b.finishAll())
		b.join(t, 70)
		require.Equal(t, 1, b.finishAll(), "a prompt that is the beginning of another")
		b.join(t, leastShared-1, 9, 9)
		require.Equal(t, leastShared+1, b.finishAll(), "too little to be shared")
	}
}

func TestBranchesOfAPromptAreComputedOnce(t *testing.T) {
	t.Parallel()
	b := stepped(t)
	b.join(t, 100)
	b.join(t, 60, 31, 31, 31, 31)
	b.join(t, 60, 31, 31, 31, 30)
	b.join(t, 20)
	require.Equal(t, 100+4+1+1, b.finishAll())
}

// The request that computes for others goes away in the middle. What it has computed
// stays, and one of the others continues.
func TestAGroupOutlivesTheOneThatComputesItsPrompt(t *testing.T) {
	t.Parallel()
	alone := stepped(t)
	alone.alone = true
	want := alone.join(t, 100)
	require.Equal(t, 100, alone.finishAll())
	for steps := range 4 {
		b := stepped(t)
		leader := b.join(t, 100)
		var others []*request
		for range 4 {
			others = append(others, b.join(t, 100))
		}
		for range steps {
			b.step()
		}
		leader.Abandon()
		b.dropAbandoned()
		b.kept.Clear()
		require.Len(t, b.running, 4)
		b.finishAll()
		require.Equal(t, 100+3, b.computed, "%d steps", steps)
		for _, q := range others {
			require.Equal(t, want.Completion, q.Completion)
		}
	}
}

func TestWhatIsKeptGoesAfterAWhileWithoutRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened, err := New(Options{Threads: 1}).NewDecoder(tinyCheckpoint())
		require.NoError(t, err)
		defer opened.Close()
		d := opened.(*decoder)
		ask := func() int {
			before := d.computed
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: make([]int32, 100), MaxTokens: 1})
			require.NoError(t, err)
			synctest.Wait()
			return d.computed - before
		}
		require.Equal(t, 100, ask())
		time.Sleep(keptIdle - time.Nanosecond)
		require.Equal(t, 1, ask())
		time.Sleep(keptIdle)
		synctest.Wait()
		require.True(t, d.kept.IsEmpty())
		require.Equal(t, 100, ask())
	})
}
