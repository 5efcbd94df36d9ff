package otlp

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/record"
)

// Attributes of a span that give the attempt a reward.
const (
	RewardAttribute     = "fulgurite.reward"      // a number
	RewardNameAttribute = "fulgurite.reward.name" // "final" if absent
)

// Attributes of the spans that emitters of Agent Lightning write: a list of rewards, of
// which the first is the primary one, and a list of links to what they are about.
const (
	emittedRewards = "agentlightning.reward"
	emittedLinks   = "agentlightning.link"
)

// Reward is a reward that a span gives. Refusal says why it is none; then it has no value.
type Reward struct {
	record.Reward
	Refusal string
}

// rewards returns the rewards that the span gives: by our own attribute, or as emitters
// of Agent Lightning write them.
func (e evidence) rewards(s record.Span) []Reward {
	if v, ok := e.attributes[RewardAttribute]; ok {
		r := Reward{Reward: record.Reward{Name: firstText(truncate(e.text(RewardNameAttribute), shortText), credit.Final), CallID: s.CallID, Source: "agent"}}
		if _, truth := v.(bool); truth {
			v = fmt.Sprint(v) // a truth value is more likely a mistake
		}
		r.setValue(RewardAttribute, v)
		return []Reward{r}
	}
	out := e.emitted(s)
	call, refusal := e.linked()
	for i := range out {
		out[i].Source, out[i].CallID, out[i].Emitted = "agent", call, s.Started
		if refusal != "" {
			out[i].Refusal = refusal
		}
	}
	return out
}

// emitted reads the rewards of Agent Lightning. Its release 0.2 wrote one attribute
// "reward", and the releases that used AgentOps an output with the type "reward".
//
// The first of a list is the primary reward, which is what its users know as the reward of
// the attempt, whatever its name is. It is also given under that name.
func (e evidence) emitted(s record.Span) []Reward {
	var out []Reward
	for _, i := range e.indices(emittedRewards) {
		at := fmt.Sprintf("%s.%d.", emittedRewards, i)
		r := Reward{Reward: record.Reward{Name: truncate(e.text(at+"name"), shortText)}}
		r.setValue(at+"value", e.attributes[at+"value"])
		out = append(out, r)
	}
	if len(out) > 0 {
		named := slices.ContainsFunc(out, func(r Reward) bool { return r.Name == credit.Final })
		switch first := out[0]; {
		case first.Name == "" || first.Name == "primary":
			out[0].Name = credit.Final
		case !named:
			first.Name = credit.Final
			out = append([]Reward{first}, out...)
		}
		return slices.DeleteFunc(out, func(r Reward) bool { return r.Name == "" })
	}
	for name, v := range map[string]any{emittedRewards: e.attributes[emittedRewards], "reward": e.attributes["reward"]} {
		if v != nil && strings.HasPrefix(s.Name, "agentlightning.") {
			r := Reward{Reward: record.Reward{Name: credit.Final}}
			r.setValue(name, v)
			return []Reward{r}
		}
	}
	for _, name := range []string{"agentops.task.output", "agentops.entity.output"} {
		var output struct {
			Type  string `json:"type"`
			Value any    `json:"value"`
		}
		if json.Unmarshal([]byte(e.text(name)), &output) == nil && output.Type == "reward" && output.Value != nil {
			r := Reward{Reward: record.Reward{Name: credit.Final}}
			r.setValue(name, output.Value)
			return []Reward{r}
		}
	}
	return nil
}

// indices returns the indices of a list of attributes, in order.
func (e evidence) indices(list string) []int {
	var all []int
	for name := range e.attributes {
		rest, ok := strings.CutPrefix(name, list+".")
		number, _, dotted := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(number); ok && dotted && err == nil && i >= 0 && i < maxAttributes && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	slices.Sort(all)
	return all
}

// replyKeys are the attributes by which a link names a reply.
var replyKeys = regexp.MustCompile(`(^|\.)(response[._]id|completion[._]id|id)$`)

// linked returns the id of the call that the span's links name, or why there is none
// although it has links. Without links the rewards are about the attempt.
func (e evidence) linked() (call, refusal string) {
	for _, i := range e.indices(emittedLinks) {
		at := fmt.Sprintf("%s.%d.", emittedLinks, i)
		key, value := e.text(at+"key_match"), e.text(at+"value_match")
		id := replyID.FindString(value)
		if id == "" || !replyKeys.MatchString(key) {
			return "", fmt.Sprintf("its link %q = %.80q names no reply: link gen_ai.response.id", truncate(key, shortText), value)
		}
		if call != "" && call != id {
			return "", "its links name two replies"
		}
		call = id
	}
	return call, ""
}

// setValue reads a finite number, also from text or a truth value.
func (r *Reward) setValue(attribute string, v any) {
	switch v := v.(type) {
	case float64:
		r.Value = v
		return
	case bool:
		if v {
			r.Value = 1
		}
		return
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
			r.Value = n
			return
		}
	}
	r.Refusal = fmt.Sprintf("%s is %.40v: want a finite number", attribute, v)
}
