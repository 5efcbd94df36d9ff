package doctor

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

// State is the result of a probe.
type State string

// The states of a finding.
const (
	// Found is there and can be used.
	Found State = "found"
	// Absent is not there, or does not work, and nothing that was asked about needs it.
	Absent State = "absent"
	// Missing is not there, or does not work, and is needed.
	Missing State = "missing"
	// Unknown could not be found out, and is not needed.
	Unknown State = "unknown"
)

// Finding is the result of one check.
type Finding struct {
	// Subject is the subject of the check: cpu, memory, disk, gpu, python, torch, vllm,
	// server, temporal, store, agent, spec or room.
	Subject string `json:"subject"`
	State   State  `json:"state"`
	// Text describes the result to people.
	Text string `json:"text"`
	// Fix are commands, or what else a person can do where something is not there.
	Fix []string `json:"fix,omitempty"`
	// Facts are the figures for programs, by subject.
	Facts any `json:"facts,omitempty"`
}

// unless is the state of what does not work: missing if it is needed.
func unless(needed bool) State {
	if needed {
		return Missing
	}
	return Absent
}

// Report is the JSON output of `fulgurite doctor --json`.
type Report struct {
	// Ready is true where nothing is missing.
	Ready    bool      `json:"ready"`
	Findings []Finding `json:"findings"`
}

func newReport(findings []Finding) Report {
	r := Report{Ready: true, Findings: findings}
	for _, f := range findings {
		r.Ready = r.Ready && f.State != Missing
	}
	return r
}

// missing returns the subjects of missing things, each once.
func (r Report) missing() []string {
	var out []string
	for _, f := range r.Findings {
		if f.State == Missing && (len(out) == 0 || out[len(out)-1] != f.Subject) {
			out = append(out, f.Subject)
		}
	}
	return out
}

// err is nil where nothing is missing.
func (r Report) err() error {
	if r.Ready {
		return nil
	}
	return fmt.Errorf("not ready, see what is missing: %s", strings.Join(r.missing(), ", "))
}

// print writes a line for each finding, and one for each command that mends it. What was
// found comes from other programs, which write what they like.
func (r Report) print(t *terminal.Terminal) {
	for _, f := range r.Findings {
		text := terminal.Escape(f.Text)
		if f.State == Missing || f.State == Unknown {
			text = string(f.State) + ": " + text
		}
		t.Printf("%-12s %s\n", f.Subject, text)
		for _, fix := range f.Fix {
			t.Printf("%-12s   fix: %s\n", "", terminal.Escape(fix))
		}
	}
}
