package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/record"
)

// Policy is the account of one of several policies.
type Policy struct {
	Policy string `json:"policy"`
	Frozen bool   `json:"frozen"`
	// Calls and Tokens count the calls that it answered and the tokens that it sampled in
	// attempts of training that count.
	Calls  int `json:"calls"`
	Tokens int `json:"tokens"`
	// Trained counts the tokens that it was trained on, in the batches of finished steps.
	Trained int `json:"trained_tokens"`
	// Promoted is the promoted version, and Pinned whether it is held, if each policy is
	// promoted alone; absent if all are promoted together.
	Promoted *int `json:"promoted,omitempty"`
	Pinned   bool `json:"pinned,omitempty"`
	// Version is the last version that updates made, and Metrics describes these updates;
	// null and absent if there is none.
	Version *int               `json:"version"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// policiesOf returns the account of each policy that the spec of a training names. trained counts
// tokens in batches.
func policiesOf(m records, trained map[string]int) []Policy {
	var out []Policy
	if m.spec.Evaluation.Only != "" {
		return nil
	}
	for _, name := range m.spec.PolicyNames() {
		p := Policy{Policy: name, Frozen: m.spec.Policies[name].Frozen, Trained: trained[name]}
		if i := slices.IndexFunc(m.usage, func(u record.PolicyUsage) bool { return u.Policy == name }); i >= 0 {
			p.Calls, p.Tokens = m.usage[i].Calls, m.usage[i].Tokens
		}
		for _, v := range slices.Backward(m.versions) {
			if p.Metrics = ofUpdates(v.Metrics, name); p.Metrics != nil {
				p.Version = &v.Number
				break
			}
		}
		if m.spec.Promotion.Alone {
			for _, move := range m.promotions {
				if move.Policy == name {
					p.Promoted, p.Pinned = &move.Version, move.Pinned()
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// ofUpdates returns the metrics of a policy's updates among those of a joint version, by their
// names for a single policy; nil if there are none.
func ofUpdates(all map[string]float64, policy string) map[string]float64 {
	var out map[string]float64
	for key, v := range all {
		if name, ok := strings.CutPrefix(key, "policy/"+policy+"/"); ok && strings.HasPrefix(name, "train/") {
			if out == nil {
				out = map[string]float64{}
			}
			out[name] = v
		}
	}
	return out
}

func (p *page) writePolicies(all []Policy) {
	if len(all) == 0 {
		return
	}
	width := len("Policies")
	for _, one := range all {
		width = max(width, len(one.Policy)+2)
	}
	alone := all[0].Promoted != nil
	heading := ""
	if alone {
		heading = " promoted"
	}
	p.Line("\n%-*s %8s %10s %10s %8s %14s %10s %10s%s", width, "Policies", "calls", "sampled", "trained", "version", "gradient norm", "mismatch", "entropy", heading)
	for _, one := range all {
		trained, version := fmt.Sprint(one.Trained), "-"
		if one.Frozen {
			trained = "frozen"
		}
		if one.Version != nil {
			version = fmt.Sprint(*one.Version)
		}
		promoted := ""
		if one.Promoted != nil {
			promoted = fmt.Sprintf(" %8d", *one.Promoted)
		}
		p.Line("%-*s %8d %10d %10s %8s %14s %10s %10s%s", width, "  "+one.Policy, one.Calls, one.Tokens, trained, version,
			one.shown("train/gradient_norm"), one.shown("train/mismatch"), one.shown("train/entropy"), promoted)
	}
}

// shown returns a metric of the last updates, or a dash.
func (o Policy) shown(metric string) string {
	v, ok := o.Metrics[metric]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.4g", v)
}
