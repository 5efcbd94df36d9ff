// Package output has the JSON Schemas of what the commands print with --json. They are made
// from the Go types and their comments by a test of the program, which also compares them
// with what the commands print. Package spec has the schema of specs.
package output

import (
	_ "embed" // the schemas
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

//go:embed schemas.json
var schemas []byte

// Schema returns the JSON Schema (draft 2020-12) of what a command prints, such as "status"
// or "token list".
func Schema(command string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(schemas, &all); err != nil {
		return nil, fmt.Errorf("read the schemas: %w", err)
	}
	text, ok := all[command]
	if !ok {
		return nil, terminal.Usagef("%s prints no JSON: give one of %s", command, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return text, nil
}
