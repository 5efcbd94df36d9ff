package fleet

import (
	"hash/maphash"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// leastPrompt is the number of tokens from which on a prompt is remembered. Computing
	// a shorter one again costs less than a load that is unequal among the samplers.
	leastPrompt = 64
	// rememberedPrompts is how many of the last prompts are remembered at least; at most
	// are twice as many.
	rememberedPrompts = 1 << 14
)

// prompts remembers which sampler was lately sent which prompt. A prompt that begins with
// it should go to the same sampler: the other samples of a group, and the next turns of a
// dialog. It keeps only digests of prompts. If two prompts had the same digest, a sampler
// would compute a prompt that another has, and nothing else would happen.
type prompts struct {
	seed         maphash.Seed
	newer, older map[uint64]string // URL by digest
}

func newPrompts() *prompts {
	return &prompts{seed: maphash.MakeSeed(), newer: map[uint64]string{}}
}

// find returns the URL of the sampler that was sent the longest prompt that this one
// begins with; it is empty if none was.
func (p *prompts) find(v model.VersionID, prompt []int32) (url string) {
	p.eachDigest(v, prompt, func(digest uint64) {
		if at, ok := p.newer[digest]; ok {
			url = at
		} else if at, ok := p.older[digest]; ok {
			url = at
		}
	})
	return url
}

// remember notes that the sampler at url is sent a prompt.
func (p *prompts) remember(v model.VersionID, prompt []int32, url string) {
	if len(prompt) < leastPrompt {
		return
	}
	var last uint64
	p.eachDigest(v, prompt, func(digest uint64) { last = digest })
	if p.newer[last] = url; len(p.newer) >= rememberedPrompts {
		p.newer, p.older = map[uint64]string{}, p.newer
	}
}

// eachDigest calls use with the digests of all beginnings that are long enough, the whole
// prompt's last.
func (p *prompts) eachDigest(v model.VersionID, prompt []int32, use func(digest uint64)) {
	const prime = 1099511628211 // of FNV-1a
	digest := maphash.Comparable(p.seed, v)
	for i, token := range prompt {
		if digest = (digest ^ uint64(uint32(token))) * prime; i+1 >= leastPrompt {
			use(digest)
		}
	}
}
