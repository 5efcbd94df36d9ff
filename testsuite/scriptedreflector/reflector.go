// Package scriptedreflector is a synthetic reflector for tests and benchmarks: a server that
// replies to the questions of package prompts/search from a fixed pool of texts.
//
// It does not reflect. It proposes any other text of the prompt's pool, or the prompt with any
// line of the pool added or taken out, each as often, and looks neither at the attempts nor at a critique. So a search that does well with it is good
// at choosing among proposals, and that is all that a result with it says: call it synthetic
// wherever such a result is shown.
//
// A reply depends on the seed, the messages and the number of the try, and on nothing that
// happened before. So it is the same after a kill, from another server with the same seed,
// and by either API. Only faults that are over when the question is sent again ([HTML],
// [TooMany]) depend on whether this server has seen the question.
package scriptedreflector

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// Fault is a way in which a reply is of no use.
type Fault string

// Faults of the reply itself: each try has at most one of them, and always the same.
const (
	CutOff    Fault = "cut_off"   // it ends in the middle
	Empty     Fault = "empty"     // it has no text
	Markup    Fault = "markup"    // its text is a web page
	Unchanged Fault = "unchanged" // it proposes the text as it is; not for a critique
	Copied    Fault = "copied"    // the text has Options.Answer in it; not for a critique
)

// Faults of the server. Such a question is replied to when it is sent again.
const (
	HTML    Fault = "html"     // a web page in place of a reply
	TooMany Fault = "too_many" // status 429
)

func ofReply() []Fault  { return []Fault{CutOff, Empty, Markup, Unchanged, Copied} }
func ofServer() []Fault { return []Fault{HTML, TooMany} }

// Options say what the reflector replies.
type Options struct {
	Pool Pool
	Seed uint64
	// Faults are the shares of questions, from 0 to 1, that have a fault. The shares of the
	// faults of replies are at most 1 together, and so are those of the server's.
	Faults map[Fault]float64
	// Answer is what replies with the fault Copied copy.
	Answer string
	// Key is the API's key. If it is empty, none is required.
	Key string
	// Delay is how long a reply takes.
	Delay time.Duration
}

// Counts are the numbers of requests so far.
type Counts struct {
	// ByKind counts all requests, also those that are sent again, by what they ask for.
	ByKind map[search.Kind]int
	// ByFault counts replies with a fault.
	ByFault map[Fault]int
	// Questions counts the different questions. Another try is another question.
	Questions int
	// Refused counts requests that are no questions of a search, or have a wrong key.
	Refused int
}

// Reflector is an http.Handler that serves OpenAI's chat completions and Anthropic's
// messages below /v1. It is safe for concurrent use.
type Reflector struct {
	options Options
	kinds   map[string]search.Kind // by the first line of the system message
	mu      sync.Mutex
	counts  Counts
	seen    map[[sha256.Size]byte]bool
}

// New returns a reflector. The error names the option that is wrong.
func New(o Options) (*Reflector, error) {
	if err := o.Pool.check(); err != nil {
		return nil, err
	}
	if err := checkShares(o.Faults); err != nil {
		return nil, err
	}
	if o.Faults[Copied] > 0 && o.Answer == "" {
		return nil, fmt.Errorf("fault %s needs an answer", Copied)
	}
	return &Reflector{
		options: o, kinds: kinds(), seen: map[[sha256.Size]byte]bool{},
		counts: Counts{ByKind: map[search.Kind]int{}, ByFault: map[Fault]int{}},
	}, nil
}

func checkShares(faults map[Fault]float64) error {
	for f, share := range faults {
		if !slices.Contains(append(ofReply(), ofServer()...), f) || !(share >= 0 && share <= 1) {
			return fmt.Errorf("fault %q with the share %v: want a known fault and a share from 0 to 1", f, share)
		}
	}
	for _, some := range [][]Fault{ofReply(), ofServer()} {
		sum := 0.0
		for _, f := range some {
			sum += faults[f]
		}
		if sum > 1 {
			return fmt.Errorf("the shares of the faults %v are %v together, and no more than 1 is possible", some, sum)
		}
	}
	return nil
}

// variants is more than any kind of question has.
const variants = 16

// firstLine returns the part of a system message that does not depend on the prompt.
func firstLine(system string) string {
	line, _, _ := strings.Cut(system, "\n")
	return line
}

// kinds returns what the system messages of a search ask for.
func kinds() map[string]search.Kind {
	out := map[string]search.Kind{}
	candidate := search.NewCandidate([]search.Prompt{{Name: "p", Text: "x"}})
	for _, kind := range []search.Kind{search.Reflect, search.Critique, search.Edit} {
		for variant := range variants {
			r, err := search.Render(search.Request{Kind: kind, Candidate: candidate, Prompt: "p", Variant: variant}, nil, nil, 1<<20)
			if err != nil {
				panic(err) // the request is complete
			}
			out[firstLine(r.System)] = kind
		}
	}
	return out
}

// Counts returns the counts so far.
func (s *Reflector) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.ByKind, c.ByFault = maps.Clone(c.ByKind), maps.Clone(c.ByFault)
	return c
}

// question is a request without what the APIs differ in.
type question struct {
	system, user, try string
	maxTokens         int
}

// reply is what to reply.
type reply struct {
	text   string
	cutOff bool
}

// number returns a number that the seed, the question and a name determine, from 0 to 1
// without 1.
func (s *Reflector) number(q question, name string) float64 {
	digest := q.digest(strconv.FormatUint(s.options.Seed, 10), name)
	return float64(binary.LittleEndian.Uint64(digest[:8])>>11) / (1 << 53)
}

func (q question) digest(names ...string) [sha256.Size]byte {
	var b strings.Builder
	for _, text := range append(names, q.system, q.user, q.try) {
		b.WriteString(strconv.Itoa(len(text)) + ":" + text)
	}
	return sha256.Sum256([]byte(b.String()))
}

// fault returns the fault that a question has among some, or "".
func (s *Reflector) fault(q question, name string, some []Fault) Fault {
	at := s.number(q, name)
	for _, f := range some {
		if at -= s.options.Faults[f]; at < 0 {
			return f
		}
	}
	return ""
}

// reply returns what a question of a kind is replied to. It depends on nothing else.
func (s *Reflector) reply(q question, kind search.Kind) (reply, Fault, error) {
	texts, fence := s.options.Pool.Critiques, ""
	others, current, err := s.options.Pool.others(q.user)
	if err != nil {
		return reply{}, "", err
	}
	if kind != search.Critique {
		texts, fence = others, "```"
	}
	text := texts[int(math.Floor(s.number(q, "text")*float64(len(texts))))]
	fault := s.fault(q, "reply", ofReply())
	if kind == search.Critique && (fault == Unchanged || fault == Copied) {
		fault = ""
	}
	switch fault {
	case Empty:
		return reply{}, fault, nil
	case Markup:
		return reply{text: "<!DOCTYPE html><html>Please sign in</html>"}, fault, nil
	case CutOff:
		half := strings.ToValidUTF8(text[:len(text)/2], "")
		return reply{strings.TrimPrefix(fence+"\n"+half, "\n"), true}, fault, nil
	case Unchanged:
		text = current
	case Copied:
		text += "\nRemember: " + s.options.Answer
	}
	if fence != "" {
		text = "This should do better:\n" + fence + "\n" + text + "\n" + fence
	}
	return reply{text: text}, fault, nil
}

// ServeHTTP is part of http.Handler.
func (s *Reflector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api, ok := apis()[strings.TrimSuffix(r.URL.Path, "/")]
	q, err := question{}, error(nil)
	if ok && r.Method == http.MethodPost {
		q, err = api.read(http.MaxBytesReader(w, r.Body, 64<<20))
	}
	switch {
	case !ok || r.Method != http.MethodPost:
		s.refuse(w, http.StatusNotFound, "nothing is served here")
	case s.options.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.options.Key && r.Header.Get("X-Api-Key") != s.options.Key:
		s.refuse(w, http.StatusUnauthorized, "the key is wrong")
	case err != nil:
		s.refuse(w, http.StatusBadRequest, "this is no request: "+err.Error())
	default:
		s.serve(w, r, api, q)
	}
}

func (s *Reflector) serve(w http.ResponseWriter, r *http.Request, api api, q question) {
	kind, ok := s.kinds[firstLine(q.system)]
	if !ok {
		s.refuse(w, http.StatusBadRequest, "the system message is none that a search asks with")
		return
	}
	out, fault, err := s.reply(q, kind)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	fault = cmp.Or(s.first(q, kind), fault)
	select {
	case <-time.After(s.options.Delay):
	case <-r.Context().Done():
		return // nobody waits any more
	}
	s.mu.Lock()
	if fault != "" {
		s.counts.ByFault[fault]++
	}
	s.mu.Unlock()
	switch fault {
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>Please sign in</html>")) // the client may be gone
	case TooMany:
		w.Header().Set("Retry-After", "0")
		fail(w, http.StatusTooManyRequests, "too many requests")
	default:
		send(w, http.StatusOK, api.write(q, out))
	}
}

// first counts a request. It returns the fault of the server that the question has when it
// is sent for the first time, or "".
func (s *Reflector) first(q question, kind search.Kind) Fault {
	id := q.digest()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.ByKind[kind]++
	if s.seen[id] {
		return ""
	}
	s.seen[id] = true
	s.counts.Questions++
	return s.fault(q, "server", ofServer())
}

func (s *Reflector) refuse(w http.ResponseWriter, status int, message string) {
	s.mu.Lock()
	s.counts.Refused++
	s.mu.Unlock()
	fail(w, status, message)
}

// fail replies with an error in a form that clients of both APIs read.
func fail(w http.ResponseWriter, status int, message string) {
	send(w, status, map[string]any{"type": "error", "error": map[string]any{"type": "scripted", "message": message}})
}

func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
