package doctor

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/agent/sandbox"
)

// Sandbox says whether agents can be isolated on this machine.
type Sandbox struct {
	// Isolation is "process", or "none" where the machine can't isolate.
	Isolation string `json:"isolation"`
	// Limits says by what the limits of isolated agents are enforced.
	Limits string `json:"limits,omitempty"`
}

// findSandbox starts an empty sandbox.
func findSandbox(needed bool) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		if err := sandbox.Check(ctx); err != nil {
			text := fmt.Sprintf("none, so no attempt with agent.sandbox: process runs here: %v", err)
			return []Finding{{Subject: "sandbox", State: unless(needed), Text: text, Fix: sandbox.Fix(err), Facts: Sandbox{Isolation: "none"}}}
		}
		facts := Sandbox{Isolation: "process", Limits: sandbox.LimitedBy()}
		return []Finding{{Subject: "sandbox", State: Found, Text: "process: agent.sandbox: process isolates agents by namespaces of Linux; limits by " + facts.Limits, Facts: facts}}
	}
}
