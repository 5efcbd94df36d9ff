// Package specs shows the specs of runs: one as text, or several compared key by key. It
// leaves out the values that agents and their servers may get in confidence.
//
// Its functions are pure.
package specs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Key is a key that not all specs have alike.
type Key struct {
	Key    string
	Values []string
}

// Differences compares the specs of runs. It returns up to most keys that are not equal
// in all of them, the number of further such keys, and the number of keys that are equal
// in all.
func Differences(runs []record.Run, most int) (keys []Key, more, equal int) {
	flat := make([]map[string]string, len(runs))
	all := map[string]bool{}
	for i, run := range runs {
		flat[i] = flatSpec(run.Spec)
		for key := range flat[i] {
			all[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		row := Key{Key: format.FirstLine(key)}
		alike := true
		for i := range flat {
			value, ok := flat[i][key]
			if !ok {
				value = format.Dash
			}
			alike = alike && value == row.first(value)
			row.Values = append(row.Values, value)
		}
		switch {
		case alike:
			equal++
		case len(keys) == most:
			more++
		default:
			keys = append(keys, row)
		}
	}
	return keys, more, equal
}

func (k Key) first(otherwise string) string {
	if len(k.Values) == 0 {
		return otherwise
	}
	return k.Values[0]
}

// flatSpec returns the values of a spec by their paths, without confidential values.
func flatSpec(raw json.RawMessage) map[string]string {
	sp, err := spec.Stored(raw)
	if err != nil {
		return map[string]string{"(spec)": "can't be read"}
	}
	shown, err := text(sp)
	var tree any
	if err == nil {
		err = json.Unmarshal([]byte(shown), &tree)
	}
	if err != nil {
		return map[string]string{"(spec)": "can't be read"}
	}
	out := map[string]string{}
	flatten(out, "", tree)
	return out
}

func flatten(out map[string]string, path string, v any) {
	object, ok := v.(map[string]any)
	if !ok || len(object) == 0 {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // the template does
		if e.Encode(v) != nil {
			return // what came from JSON always encodes
		}
		out[path] = format.FirstLine(strings.Trim(strings.TrimSpace(text.String()), `"`))
		return
	}
	for key, value := range object {
		flatten(out, strings.TrimPrefix(path+"."+key, "."), value)
	}
}

// Text returns a spec as readable text. It leaves out the values that agents and their
// servers may get in confidence.
func Text(raw json.RawMessage) (string, error) {
	var sp spec.Spec // as it is on record, without defaults of today
	if err := json.Unmarshal(raw, &sp); err != nil {
		return "", err
	}
	return text(sp)
}

// text returns a spec as JSON, without confidential values.
func text(sp spec.Spec) (string, error) {
	for _, secrets := range []map[string]string{sp.Agent.Environment, headersOf(sp)} {
		for name := range secrets {
			secrets[name] = "(not shown)"
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the template does
	e.SetIndent("", "  ")
	if err := e.Encode(sp); err != nil {
		return "", fmt.Errorf("encode the spec: %w", err)
	}
	return b.String(), nil
}

func headersOf(sp spec.Spec) map[string]string {
	if sp.Agent.Service == nil {
		return nil
	}
	return sp.Agent.Service.Headers
}
