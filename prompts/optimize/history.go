package optimize

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/spec"
)

// History is a search with everything that happened in it. It follows from the search's
// settings and the answers alone, so whoever has these has all of it.
//
// A history takes answers in rounds: a round has the requests that the search has open at
// one moment, and the search gets their answers together, in the order of their ids. So the
// order in which the answers come changes nothing, not even the numbers of later requests.
type History struct {
	search search.Search
	next   int // the number of the next request
	open   []Request
	// answered are the answers to open requests.
	answered  map[string]search.Answer
	served    []Served
	decisions []Decision
}

// Request is a request of a search with its number. Numbers count the requests of a search
// from 0.
type Request struct {
	search.Request
	Number int `json:"number"`
}

// Served is a request with its answer.
type Served struct {
	Request
	Answer search.Answer `json:"answer"`
}

// Decision is a decision of a search, and the number of the request whose answer led to it.
type Decision struct {
	search.Decision
	Request int `json:"request"`
}

// NewHistory returns the history of a search that has begun.
func NewHistory(s search.Search) *History {
	h := &History{search: s, answered: map[string]search.Answer{}}
	h.number()
	return h
}

// Begin returns the history of the search that a spec describes, before its first answer,
// for the numbers of tasks in its splits. The spec has to be complete, with the texts of
// its prompts.
func Begin(s spec.Spec, train, validation int) (*History, error) {
	if s.Optimizer == nil {
		return nil, errors.New("the spec has no optimizer")
	}
	made, err := Of(s, train, validation)
	if err != nil {
		return nil, err
	}
	return NewHistory(made), nil
}

// Seed returns the candidate that a search starts from.
func Seed(s spec.Spec) search.Candidate {
	var texts []search.Prompt
	for _, t := range s.Prompts.Texts {
		texts = append(texts, search.Prompt{Name: t.Name, Text: t.Text})
	}
	return search.NewCandidate(texts)
}

// number makes the search's open requests those of a round.
func (h *History) number() {
	h.open = nil
	for _, r := range h.search.Next().Requests {
		h.open = append(h.open, Request{r, h.next})
		h.next++
	}
}

// Take takes the answer to an open request. Another answer to a request that has one
// changes nothing. An error means that the search knows no such request, or that the answer
// does not fit it. Then the history must not be used any more.
func (h *History) Take(a search.Answer) error {
	waits := false
	for _, r := range h.open {
		waits = waits || r.ID == a.Request
	}
	if _, twice := h.answered[a.Request]; !waits || twice {
		if twice || h.has(a.Request) {
			return nil
		}
		return fmt.Errorf("take the answer to request %q: %w", a.Request, search.ErrNotOpen)
	}
	h.answered[a.Request] = a
	if len(h.answered) < len(h.open) {
		return nil
	}
	round := h.open
	for _, r := range round {
		answer := h.answered[r.ID]
		made, err := h.search.Answer(answer)
		if err != nil {
			return err
		}
		h.served = append(h.served, Served{r, answer})
		for _, d := range made {
			h.decisions = append(h.decisions, Decision{d, r.Number})
		}
	}
	clear(h.answered)
	h.number()
	return nil
}

func (h *History) has(request string) bool {
	for _, s := range h.served {
		if s.ID == request {
			return true
		}
	}
	return false
}

// Open returns the requests of the round that have no answer yet. Done is not nil if there
// is nothing to do any more.
func (h *History) Open() (requests []Request, done *search.Done) {
	for _, r := range h.open {
		if _, ok := h.answered[r.ID]; !ok {
			requests = append(requests, r)
		}
	}
	return requests, h.search.Next().Done
}

// Served returns the requests of the rounds that are over, with their answers, by number.
// The caller must not change them.
func (h *History) Served() []Served { return h.served }

// Decisions returns what the search decided, in order. The caller must not change them.
func (h *History) Decisions() []Decision { return h.decisions }

// Stopped returns the end that the search has if nobody goes on with it.
func (h *History) Stopped() search.Done { return h.search.Stopped() }

// Account returns what the search has spent and what was refused.
func (h *History) Account() search.Account { return h.search.Account() }

// EqualBefore returns how many requests of the round before this one ask a reflector the
// same about the same candidate. Such requests may get equal questions, which would have
// equal replies.
func (h *History) EqualBefore(r Request) int {
	n := 0
	for _, other := range h.open {
		if other.Number < r.Number && other.Kind == r.Kind && other.Candidate.ID == r.Candidate.ID && other.Prompt == r.Prompt &&
			other.Variant == r.Variant && other.Critique == r.Critique {
			n++
		}
	}
	return n
}
