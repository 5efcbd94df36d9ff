package tokenizer

// merge is the token that two neighbouring tokens become. The merge of the lowest rank is
// made first.
type merge struct {
	rank, id int32
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// merger merges the tokens of one piece. It is used again for the next piece, so
// that pieces cost no memory.
type merger struct {
	pairs   map[uint64]merge
	symbols []symbol
	queue   []candidate
}

// symbol is a token of the piece, linked to its neighbours; id -1 is one that was
// merged into the symbol before it.
type symbol struct {
	id             int32
	previous, next int32 // -1 if there is none
}

// candidate is a merge of the symbol at a place with the next one.
type candidate struct {
	merge
	at int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// add appends a token to the piece. It ignores an id of -1, which a byte without a token
// has.
func (m *merger) add(id int32) {
	if id >= 0 {
		n := int32(len(m.symbols))
		m.symbols = append(m.symbols, symbol{id, n - 1, n + 1})
	}
}

// run merges the symbols until no merge applies, and appends the resulting tokens to ids.
func (m *merger) run(ids []int32) []int32 {
	if len(m.symbols) == 0 {
		return ids
	}
	m.symbols[len(m.symbols)-1].next = -1
	m.queue = m.queue[:0]
	for i := range len(m.symbols) - 1 {
		m.consider(int32(i))
	}
	for len(m.queue) > 0 {
		c := m.pop()
		left := &m.symbols[c.at]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if now, ok := m.pairs[pair(left.id, right.id)]; !ok || now.id != c.id {
			continue // one of the two was merged with another symbol meanwhile
		}
		left.id, left.next = c.id, right.next
		right.id = -1
		if left.next >= 0 {
			m.symbols[left.next].previous = c.at
			m.consider(c.at)
		}
		if left.previous >= 0 {
			m.consider(left.previous)
		}
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		ids = append(ids, m.symbols[i].id)
	}
	return ids
}

// consider puts the merge of a symbol and its next one into the queue.
func (m *merger) consider(at int32) {
	s := m.symbols[at]
	found, ok := m.pairs[pair(s.id, m.symbols[s.next].id)]
	if !ok {
		return
	}
	m.queue = append(m.queue, candidate{found, at})
	for i := len(m.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.queue[i].before(m.queue[parent]) {
			return
		}
		m.queue[i], m.queue[parent] = m.queue[parent], m.queue[i]
		i = parent
	}
}

func (m *merger) pop() candidate {
	first, last := m.queue[0], len(m.queue)-1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && m.queue[child+1].before(m.queue[child]) {
			child++
		}
		if !m.queue[child].before(m.queue[i]) {
			return first
		}
		m.queue[i], m.queue[child] = m.queue[child], m.queue[i]
		i = child
	}
}
