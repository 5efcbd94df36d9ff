package hf

import (
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// rope is how transformers writes rotary embeddings: as rope_scaling up to version 4,
// with rope_theta as a separate field, and as rope_parameters since version 5.
type rope struct {
	Type      string   `json:"rope_type,omitempty"`
	OldType   string   `json:"type,omitempty"`
	RopeTheta *float64 `json:"rope_theta,omitempty"`
	Partial   *float64 `json:"partial_rotary_factor,omitempty"`
	// Only of type llama3.
	Factor            *float64 `json:"factor,omitempty"`
	LowFrequency      *float64 `json:"low_freq_factor,omitempty"`
	HighFrequency     *float64 `json:"high_freq_factor,omitempty"`
	OriginalPositions *int     `json:"original_max_position_embeddings,omitempty"`
}

const llama3Rope = "llama3"

// rotary reads rope_theta and the scaling. A file may have both forms, if they say
// the same.
func (c config) rotary() (theta float64, scaling model.RopeScaling, err error) {
	broken := func(format string, args ...any) (float64, model.RopeScaling, error) {
		return 0, model.RopeScaling{}, fmt.Errorf("%w: config.json: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	thetas, scalings := map[string]float64{}, map[string]model.RopeScaling{}
	if c.RopeTheta != nil {
		thetas["rope_theta"] = *c.RopeTheta
	}
	for _, r := range c.ropes() {
		if r.RopeTheta != nil {
			thetas[r.field] = *r.RopeTheta
		}
		scalings[r.field] = model.RopeScaling{}
		if r.kind() != llama3Rope {
			continue
		}
		if r.Factor == nil || r.LowFrequency == nil || r.HighFrequency == nil || r.OriginalPositions == nil {
			return broken("%s of type %q lacks one of factor, low_freq_factor, high_freq_factor, original_max_position_embeddings", r.field, llama3Rope)
		}
		scalings[r.field] = model.RopeScaling{
			Factor: *r.Factor, LowFrequencyFactor: *r.LowFrequency, HighFrequencyFactor: *r.HighFrequency, OriginalPositions: *r.OriginalPositions,
		}
		if outer := c.OriginalPositions; outer != nil && *outer != *r.OriginalPositions {
			return broken("original_max_position_embeddings is %d, but %d in %s", *outer, *r.OriginalPositions, r.field)
		}
	}
	theta, first := 10000, ""
	for _, field := range []string{"rope_theta", "rope_scaling", "rope_parameters"} {
		t, ok := thetas[field]
		switch {
		case ok && first != "" && t != theta:
			return broken("rope_theta is %v in %s, but %v in %s", theta, first, t, field)
		case ok:
			theta, first = t, field
		}
	}
	old, isOld := scalings["rope_scaling"]
	scaling, isNew := scalings["rope_parameters"]
	switch {
	case isOld && isNew && old != scaling:
		return broken("rope_scaling and rope_parameters differ")
	case isOld:
		scaling = old
	}
	return theta, scaling, nil
}

// namedRope is a rope with the name of its field.
type namedRope struct {
	field string
	*rope
}

func (c config) ropes() []namedRope {
	var set []namedRope
	for _, r := range []namedRope{{"rope_scaling", c.RopeScaling}, {"rope_parameters", c.RopeParameters}} {
		if r.rope != nil && *r.rope != (rope{}) {
			set = append(set, r)
		}
	}
	return set
}

// kind returns the type under its new or its old name; empty means the default.
func (r rope) kind() string {
	if r.Type != "" {
		return r.Type
	}
	return r.OldType
}

// refused returns what differs from what model.RopeScaling computes, and "" if nothing
// does.
func (r namedRope) refused() string {
	switch kind := r.kind(); {
	case r.OldType != "" && r.OldType != kind:
		return fmt.Sprintf("%s has rope_type %q and type %q", r.field, r.Type, r.OldType)
	case kind != "" && kind != "default" && kind != llama3Rope:
		return fmt.Sprintf("%s of type %q, want default or llama3", r.field, kind)
	case r.Partial != nil && *r.Partial != 1:
		return fmt.Sprintf("%s with partial_rotary_factor %v", r.field, *r.Partial)
	}
	return ""
}

// ropesOf returns a's scaling in the forms that versions 4 and 5 of transformers read,
// and nil without scaling.
func ropesOf(a model.Architecture) (scaling, parameters *rope) {
	s := a.RopeScaling
	if s == (model.RopeScaling{}) {
		return nil, nil
	}
	scaling = &rope{
		Type: llama3Rope, Factor: &s.Factor, LowFrequency: &s.LowFrequencyFactor, HighFrequency: &s.HighFrequencyFactor,
		OriginalPositions: &s.OriginalPositions,
	}
	inner := *scaling
	inner.RopeTheta = &a.RopeTheta
	return scaling, &inner
}
