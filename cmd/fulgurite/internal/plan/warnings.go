package plan

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// warnings are what may stand in the way of learning and does not have to: what has to
// is refused.
func (p Plan) warnings() []string {
	out := []string{}
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	m := p.Spec.Model
	if m.Base == spec.BaseTiny && m.WarmStart == nil {
		warn("the built-in model starts from random weights and solves nothing by itself: give model.warm_start, or a directory as model.base")
	}
	if least := p.leastSignificance(); p.Tasks[trace.Gate] > 0 && p.Spec.Promotion.Significance < 1 && least > p.Spec.Promotion.Significance {
		warn("tasks.gate has %d tasks, too few for a p-value of promotion.significance %g (the least is %g): nothing will be promoted",
			p.Tasks[trace.Gate], p.Spec.Promotion.Significance, least)
	}
	if m.Codec == spec.CodecTemplate && m.ToolParser == "" {
		if codec, err := planCodec(m); err == nil && dialog.CheckTools(codec, "of its template") != nil {
			warn("the chat template leaves out tools that are offered: an agent that offers some runs without its model seeing them")
		}
	}
	if text := failurePays(p.Spec); text != "" {
		warn("%s", text)
	}
	return out
}

// leastSignificance is the least p-value that the gate split can give.
func (p Plan) leastSignificance() float64 { return math.Pow(0.5, float64(p.Tasks[trace.Gate])) }
