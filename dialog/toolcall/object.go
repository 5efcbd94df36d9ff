package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// member is a member of a JSON object, its value as it was written.
type member struct {
	key   string
	value json.RawMessage
}

// readObject reads the JSON object that text begins with and returns the rest.
func readObject(text string) (members []member, rest string, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, "", errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", errors.New("not a JSON object")
		}
		m := member{key: key.(string)} // a decoder returns a string for a key
		if err := d.Decode(&m.value); err != nil {
			return nil, "", fmt.Errorf("the value of %q is not JSON", m.key)
		}
		if seen[m.key] {
			return nil, "", fmt.Errorf("%q occurs twice", m.key)
		}
		seen[m.key] = true
		members = append(members, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, "", errors.New("not a JSON object")
	}
	return members, text[d.InputOffset():], nil
}

// readCall makes a call from the members of an object: "name", and the arguments under
// one of the keys.
func readCall(members []member, tools []Tool, keys ...string) (Call, error) {
	var c Call
	named := false
	for _, m := range members {
		switch {
		case m.key == "name":
			if json.Unmarshal(m.value, &c.Name) != nil || string(m.value) == "null" {
				return Call{}, errors.New(`"name" is not a string`)
			}
			named = true
		case m.key == "type" && string(m.value) == `"function"`:
		case slices.Contains(keys, m.key) && c.Arguments == "":
			if m.value[0] != '{' {
				return Call{}, fmt.Errorf("%q is not a JSON object", m.key)
			}
			c.Arguments = string(m.value)
		default:
			return Call{}, fmt.Errorf("%q out of place", m.key)
		}
	}
	switch {
	case !named:
		return Call{}, errors.New(`"name" is absent`)
	case c.Arguments == "":
		return Call{}, fmt.Errorf("%q is absent", keys[0])
	}
	if _, ok := find(tools, c.Name); !ok {
		return Call{}, fmt.Errorf("unknown tool %q", c.Name)
	}
	return c, nil
}
