package kvcache

// Free returns how many pages are free.
func (p *Pages) Free() int { return len(p.free) }

// Held returns how many pages are kept.
func (k *Kept) Held() int { return k.held }

// Sequences returns the tokens of the kept sequences, in order.
func (k *Kept) Sequences() (all [][]int32) {
	for _, s := range k.sequences {
		all = append(all, s.tokens)
	}
	return all
}
