package kvcache_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
	"github.com/fulgurite/fulgurite/model/engine/native/prefix"
)

// filled returns pages for tokens, with each token from position from on written at its
// position.
func filled(p *kvcache.Pages, held []*kvcache.Page, from int, tokens []int32) []*kvcache.Page {
	held = p.Reserve(held, len(tokens))
	for i := from; i < len(tokens); i++ {
		held[i/kvcache.PagePositions].Data()[i%kvcache.PagePositions] = float32(tokens[i])
	}
	return held
}

// written returns the first n tokens that filled wrote.
func written(held []*kvcache.Page, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(held[i/kvcache.PagePositions].Data()[i%kvcache.PagePositions])
	}
	return tokens
}

func count(n int, last ...int32) []int32 {
	tokens := make([]int32, n, n+len(last))
	for i := range tokens {
		tokens[i] = int32(i)
	}
	return append(tokens, last...)
}

func TestTheLongestBeginningIsFound(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	k := kvcache.NewKept(p, 100)
	for _, tokens := range [][]int32{count(40, 7, 7), count(90), count(33, 9), {5, 5}} {
		k.Keep(tokens, filled(p, nil, 0, tokens))
	}
	for _, c := range []struct {
		tokens []int32
		want   int
	}{
		{count(40, 7, 8), 41}, {count(120), 90}, {count(50), 50}, {count(33, 10), 33}, {[]int32{5}, 1}, {[]int32{6}, 0}, {[]int32{}, 0},
	} {
		n, pages := k.Longest(c.tokens)
		require.Equal(t, c.want, n)
		require.Equal(t, c.tokens[:n:n], written(pages, n)[:n:n])
	}
}

func TestWhatOthersBeginWithIsNotKeptTwice(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	k := kvcache.NewKept(p, 100)
	for _, n := range []int{40, 70, 50, 70} {
		k.Keep(count(n), filled(p, nil, 0, count(n)))
	}
	require.Equal(t, [][]int32{count(70)}, k.Sequences())
	require.Equal(t, 3, k.Held())
}

func TestTheLeastRecentlyUsedIsGivenUpFirst(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	k := kvcache.NewKept(p, 2)
	for first := range int32(3) {
		tokens := []int32{first, 1}
		k.Keep(tokens, filled(p, nil, 0, tokens))
	}
	k.Longest([]int32{0})
	require.Equal(t, 3, k.Held(), "no page is needed yet")
	k.Keep([]int32{3, 1}, filled(p, nil, 0, []int32{3, 1}))
	require.Equal(t, [][]int32{{0, 1}, {2, 1}, {3, 1}}, k.Sequences())
	running := p.Reserve(nil, 3*kvcache.PagePositions)
	require.Equal(t, [][]int32{{0, 1}, {3, 1}}, k.Sequences(), "two may stay")
	p.Release(running)
	k.Keep(count(90), p.Reserve(nil, 90))
	require.Equal(t, 4, k.Held(), "it took the place of {0, 1}, with which it begins")
	k.Shrink()
	require.True(t, k.IsEmpty(), "the last one is more than may stay")
	require.Equal(t, 5, p.Free())
}

// Pages that running requests hold are not taken from them.
func TestPagesThatRequestsHoldAreNotReclaimed(t *testing.T) {
	t.Parallel()
	p := &kvcache.Pages{Shape: shape()}
	k := kvcache.NewKept(p, 0)
	k.Keep(count(64), filled(p, nil, 0, count(64)))
	n, pages := k.Longest(count(40))
	running := p.Share(pages, n)
	require.Equal(t, count(40), written(running, n), "the copy is of a page that was given up for it")
	running = filled(p, running, 40, count(100))
	require.Equal(t, count(100), written(running, 100))
	require.True(t, k.IsEmpty())
}

// Requests begin with kept pages, continue from there and are then kept themselves.
func TestKeptPagesHoldWhatTheirTokensSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &kvcache.Pages{Shape: shape()}
		k := kvcache.NewKept(p, rapid.IntRange(0, 12).Draw(t, "stay"))
		rows := [][]int32{nil}
		type request struct {
			tokens []int32
			pages  []*kvcache.Page
		}
		var running []request
		lent := map[*kvcache.Page]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			from := rapid.SampledFrom(rows).Draw(t, "row")
			from = from[:rapid.IntRange(0, len(from)).Draw(t, "kept")]
			tokens := append(slices.Clone(from), rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 70).Draw(t, "more")...)
			rows = append(rows, tokens)
			n, pages := k.Longest(tokens)
			require.LessOrEqual(t, n, len(tokens))
			q := request{tokens, filled(p, p.Share(pages, n), n, tokens)}
			for _, page := range q.pages {
				lent[page] = true
			}
			running = append(running, q)
			if rapid.Bool().Draw(t, "finish") {
				at := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				k.Keep(running[at].tokens, running[at].pages)
				running = slices.Delete(running, at, at+1)
			}
			for _, q := range running {
				require.Equal(t, append([]int32{}, q.tokens...), written(q.pages, len(q.tokens)))
			}
			requireInOrder(t, k)
		}
		for _, q := range running {
			p.Release(q.pages)
		}
		k.Clear()
		require.Zero(t, k.Held())
		require.Equal(t, len(lent), p.Free(), "every page is free once, and none was lent twice")
	})
}

// requireInOrder requires that sequences ascend, and that none is a prefix of another.
func requireInOrder(t require.TestingT, k *kvcache.Kept) {
	all := k.Sequences()
	for i := 1; i < len(all); i++ {
		require.Negative(t, slices.Compare(all[i-1], all[i]))
		require.Less(t, prefix.Common(all[i-1], all[i]), len(all[i-1]))
	}
	for _, tokens := range all {
		n, pages := k.Longest(tokens)
		require.Equal(t, len(tokens), n)
		require.Equal(t, tokens, written(pages, n))
	}
}
