package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/trace"
)

// attempted is what one attempt at a walk left behind.
type attempted struct {
	exchanges []*exchange
	calls     []trace.Exchange
	spans     []trace.Span
}

// refused reports the requests that were not answered as their sender wished.
func (a attempted) refused() error {
	var all []error
	for _, x := range a.exchanges {
		if x.status != http.StatusOK {
			all = append(all, fmt.Errorf("refused: %s", x))
		}
	}
	return errors.Join(all...)
}

// recorded holds the record to the walk: each call is there, with its tokens.
func (a attempted) recorded(w walk) error {
	var all []error
	if len(a.calls) != w.Calls {
		all = append(all, fmt.Errorf("%d calls are on record, want %d:%s", len(a.calls), w.Calls, a.requests()))
	}
	streams := 0
	for _, x := range a.exchanges {
		if x.stream {
			streams++
		}
	}
	if want := map[bool]int{true: w.Calls}[w.Stream]; streams != want {
		all = append(all, fmt.Errorf("%d of %d replies were event streams, want %d", streams, len(a.exchanges), want))
	}
	for _, c := range a.calls {
		switch {
		case apiOf(c) != w.API:
			all = append(all, fmt.Errorf("call %d came by %s, want %s", c.Seq, apiOf(c), w.API))
		case len(c.Prompt) == 0 || len(c.Completion) == 0 || len(c.Completion) != len(c.Logprobs):
			all = append(all, fmt.Errorf("call %d has %d tokens of prompt, %d of completion and %d log-probabilities", c.Seq, len(c.Prompt), len(c.Completion), len(c.Logprobs)))
		case c.ParseError != "":
			all = append(all, fmt.Errorf("call %d: %s", c.Seq, c.ParseError))
		}
	}
	if trained(a.calls) == 0 {
		all = append(all, errors.New("no token of it would be trained"))
	}
	return errors.Join(all...)
}

// requests shows what was asked, for people.
func (a attempted) requests() string {
	var b bytes.Buffer
	for _, x := range a.exchanges {
		fmt.Fprintf(&b, "\n  %s %s by %s\n    %.3000s", x.method, x.path, x.client, x.request)
	}
	return b.String()
}

// apiOf names the API that a call came by.
func apiOf(c trace.Exchange) string {
	if c.API == "" {
		return "chat"
	}
	return c.API
}

// same holds a second attempt to the first: the same calls, from the record, and the
// same bytes to the client.
func (a attempted) same(second attempted) error {
	first := map[string]trace.Exchange{}
	for _, c := range a.calls {
		first[c.ID] = c
	}
	for _, c := range second.calls {
		f, there := first[c.ID]
		switch {
		case !there || c.ReplayedFrom != f.Attempt:
			return fmt.Errorf("call %d was sampled again: %s", c.Seq, c.Request)
		case !bytes.Equal(c.Response, f.Response):
			return fmt.Errorf("call %d is on record with two responses:\n  %s\n  %s", c.Seq, f.Response, c.Response)
		}
	}
	replies := map[string]int{}
	for _, x := range a.exchanges {
		replies[string(withoutComments(x.reply.Bytes()))]++
	}
	for _, x := range second.exchanges {
		if x.isExport() {
			continue // how many spans an exporter sends at once is chance
		}
		text := string(withoutComments(x.reply.Bytes()))
		if replies[text]--; replies[text] < 0 {
			return fmt.Errorf("another reply than the first: %s", x)
		}
	}
	return nil
}
