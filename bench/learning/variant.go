package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// variant is a setting of some keys of a spec.
type variant struct {
	name string
	keys map[string]any
}

// variants returns all combinations of the values of the axes. An axis is
// "key=value,value".
func variants(axes []string) ([]variant, error) {
	out := []variant{{keys: map[string]any{}}}
	for _, axis := range axes {
		if axis == "" {
			continue
		}
		key, values, ok := strings.Cut(axis, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value,value", axis)
		}
		var next []variant
		for _, v := range out {
			for value := range strings.SplitSeq(values, ",") {
				next = append(next, v.with(key, value))
			}
		}
		out = next
	}
	return out, nil
}

func (v variant) with(key, value string) variant {
	keys := map[string]any{key: parsed(value)}
	for k, old := range v.keys {
		keys[k] = old
	}
	return variant{strings.TrimSpace(v.name + " " + key[strings.LastIndex(key, ".")+1:] + "=" + value), keys}
}

// parsed returns the text as a number if it is one, or else as a string.
func parsed(text string) any {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return text
}

// apply returns base with the variant's keys set. base has no defaults filled in. Keys of
// base that would have no effect with the new values are removed.
func (v variant) apply(base spec.Spec) (spec.Spec, error) {
	text, err := json.Marshal(base)
	if err != nil {
		return base, err
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return base, err
	}
	for key, value := range v.keys {
		parts := strings.Split(key, ".")
		at := document
		for _, part := range parts[:len(parts)-1] {
			below, ok := at[part].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[part] = below
			}
			at = below
		}
		at[parts[len(parts)-1]] = value
	}
	if text, err = json.Marshal(document); err != nil {
		return base, err
	}
	out, err := spec.Parse(text, "variant.json")
	if err != nil {
		return out, fmt.Errorf("%s: %w", v.name, err)
	}
	if estimated := out.Credit.Assignment == credit.TurnGAE || out.Credit.Assignment == credit.ValueDifference; estimated {
		out.Credit.Mean, out.Credit.Std, out.Credit.Combine = "", "", ""
	}
	if err := out.Check(); err != nil {
		return out, fmt.Errorf("%s: %w", v.name, err)
	}
	return out, nil
}
