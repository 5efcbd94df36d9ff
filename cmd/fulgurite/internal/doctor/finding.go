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
	// Found means that the thing exists and can be used.
	Found State = "found"
	// Absent means that the thing does not exist or does not work, and is not needed.
	Absent State = "absent"
	// Missing means that the thing does not exist or does not work, but is needed.
	Missing State = "missing"
	// Unknown means that the probe could not find out, and the thing is not needed.
	Unknown State = "unknown"
)

// Finding is the result of one check.
type Finding struct {
	// Subject is the subject of the check: cpu, memory, disk, gpu, python, torch, vllm,
	// server, temporal, store, agent, spec or room.
	Subject string `json:"subject"`
	State   State  `json:"state"`
	// Text describes the result in words.
	Text string `json:"text"`
	// Fix lists commands, or other ways to get what does not exist or work.
	Fix []string `json:"fix,omitempty"`
	// Facts are the figures for programs, by subject.
	Facts any `json:"facts,omitempty"`
}

// unless returns the state of a thing that does not work: Missing if it is needed, else
// Absent.
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

// err returns nil if nothing is missing.
func (r Report) err() error {
	if r.Ready {
		return nil
	}
	return fmt.Errorf("not ready, see what is missing: %s", strings.Join(r.missing(), ", "))
}

// print writes a line for each finding, and one for each command that mends it. Findings
// hold output of other programs, which may be any bytes, so they are escaped.
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
