package otlp

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/trace"
)

// Attributes of a span that give the attempt a reward.
const (
	RewardAttribute     = "fulgurite.reward"      // a number
	RewardNameAttribute = "fulgurite.reward.name" // "final" if absent
)

// rewards returns the rewards that the span gives: by our own attribute, or as emitters
// of Agent Lightning write them ("agentlightning.reward.0.value" and ".name", or "reward"
// on a span of that name).
func (e evidence) rewards(s trace.Span) []trace.Reward {
	var out []trace.Reward
	add := func(v any, name string) {
		if number, ok := number(v); ok {
			out = append(out, trace.Reward{Name: firstText(truncate(name, shortText), credit.Final), Value: number, CallID: s.CallID, Source: "agent"})
		}
	}
	if v, ok := e.attributes[RewardAttribute]; ok {
		add(v, e.text(RewardNameAttribute))
		return out
	}
	for i := range 16 {
		at := fmt.Sprintf("agentlightning.reward.%d.", i)
		v, ok := e.attributes[at+"value"]
		if !ok {
			break
		}
		name := e.text(at + "name")
		if i == 0 && (name == "" || name == "primary") {
			name = credit.Final
		}
		add(v, name)
	}
	if v, ok := e.attributes["reward"]; ok && len(out) == 0 && strings.HasPrefix(s.Name, "agentlightning.") {
		add(v, "")
	}
	return out
}

// number reads a finite number, also from text.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		n, err := strconv.ParseFloat(v, 64)
		return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
	}
	return 0, false
}
