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

// findAll runs all probes at once and returns their findings in the order of the probes.
// Each has a context that ends after limit. A probe that goes on after that is abandoned:
// nothing can interrupt a goroutine that waits for a hanging driver or file system, and
// it ends with the program.
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

// orUnknown returns the state of a thing whose probe did not answer: Missing if it is
// needed, else Unknown.
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
