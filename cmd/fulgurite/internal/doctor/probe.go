package doctor

import (
	"context"
	"fmt"
	"time"
)

// probe is something to find out.
type probe struct {
	subject string
	needed  bool
	find    func(ctx context.Context) []Finding
}

// abandon is how much longer than its context a probe may take.
const abandon = 3 * time.Second

// findAll asks all probes at once and returns what they find in their order. Each has a
// context that ends after limit. One that goes on nevertheless is left behind: nobody can
// interrupt who waits for a driver or a file system that hangs, and the program's end
// ends it.
func findAll(ctx context.Context, limit time.Duration, probes []probe) []Finding {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	over, cancelOver := context.WithTimeout(ctx, limit+abandon)
	defer cancelOver()
	answers := make([]chan []Finding, len(probes))
	for i, p := range probes {
		answers[i] = make(chan []Finding, 1)
		go func() { answers[i] <- p.find(within) }()
	}
	var out []Finding
	for i, p := range probes {
		select {
		case found := <-answers[i]:
			out = append(out, found...)
		case <-over.Done():
			select {
			case found := <-answers[i]: // in time, while another was waited for
				out = append(out, found...)
			default:
				out = append(out, Finding{Subject: p.subject, State: orUnknown(p.needed), Text: silence(limit).Error()})
			}
		}
	}
	return out
}

// orUnknown is the state of what did not answer.
func orUnknown(needed bool) State {
	if needed {
		return Missing
	}
	return Unknown
}

// silence is the error of a probe that gave no answer within the limit.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("no answer within %s; --limit gives it longer", time.Duration(s))
}
