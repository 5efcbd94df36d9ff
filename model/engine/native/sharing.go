package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
	"github.com/fulgurite/fulgurite/model/engine/native/prefix"
)

const (
	// leastShared is the shortest common prefix that one prompt takes over from another:
	// to wait for fewer tokens costs more than to compute them.
	leastShared = 8
	// keptNumbers and keptPages limit the memory for finished requests that a decoder
	// takes in addition, and that stays while it has no requests: 256 MiB, and no more
	// positions than are worth it for a small model, which computes them fast.
	keptNumbers = 64 << 20
	keptPages   = 1024
)

func newKept(pages *kvcache.Pages) *kvcache.Kept {
	return kvcache.NewKept(pages, pagesToStay(pages.Shape))
}

func pagesToStay(s kvcache.Shape) int { return min(keptPages, keptNumbers/s.Numbers()) }

// KeptBytes returns how much memory a decoder takes at most in addition to that of
// requests that run at the same time: keys and values of earlier requests, for those that
// continue them.
func KeptBytes(a model.Architecture) int64 {
	s := newLayout(a).pageShape()
	return 4 * int64(pagesToStay(s)*s.Numbers())
}

// share gives q the keys and values of a prefix of its prompt that finished requests, or
// requests before it in the batch, have computed. If another request is about to compute
// them, q waits for it, and share reports true. q only waits for a request before it, so
// the first request of a batch never waits.
func (b *batch) share(q *request, before []*request) (waits bool) {
	if !q.sought {
		q.sought = true
		b.seek(q, before)
	}
	b.follow(q)
	return q.leader != nil
}

// seek finds the request that has, or will have, the longest prefix of q's prompt. The
// last token of a prompt is always fed, because the first token of the completion comes
// from it.
func (b *batch) seek(q *request, before []*request) {
	most := len(q.Prompt) - 1
	least := max(leastShared, q.cached+1)
	if b.alone || most < least {
		return
	}
	n, pages := b.kept.Longest(q.Prompt[:most])
	for _, other := range before {
		if n == most {
			break
		}
		if common := min(prefix.Common(other.Prompt, q.Prompt), most); common > n {
			n, q.leader, q.shared = common, other, common
		}
	}
	switch {
	case n < least:
		q.leader = nil
	case q.leader == nil:
		b.adopt(q, pages, n)
	}
}

// follow lets q take over what its leader has computed, as soon as that is everything
// that they share. If the leader ends before that, q takes what there is and seeks
// another leader for the rest.
func (b *batch) follow(q *request) {
	if q.leader == nil {
		return
	}
	ready := min(q.shared, q.leader.cached)
	if ready < q.shared && !q.leader.Finished() {
		return
	}
	if ready > q.cached {
		b.adopt(q, q.leader.pages, ready)
	}
	q.sought, q.leader = ready == q.shared, nil
}

// adopt gives q the first n positions of pages.
func (b *batch) adopt(q *request, pages []*kvcache.Page, n int) {
	shared := b.pages.Share(pages, n)
	b.pages.Release(q.pages)
	q.pages, q.cached = shared, n
	q.Share(n)
}

// remove answers requests that have finished. Before that, requests that wait for them
// take over what they have computed.
func (b *batch) remove() {
	for _, q := range b.running {
		if !q.Finished() {
			b.follow(q)
		}
	}
	b.running = slices.DeleteFunc(b.running, b.finish)
}

// keep keeps the pages of a request that has finished, or was abandoned, for requests
// that continue it.
func (b *batch) keep(q *request) {
	if b.alone {
		b.pages.Release(q.pages)
		return
	}
	tokens := make([]int32, q.cached)
	copy(tokens[copy(tokens, q.Prompt):], q.Completion.Tokens)
	b.kept.Keep(tokens, q.pages)
}
