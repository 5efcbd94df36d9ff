package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// hexIDsToBase64 rewrites ids into Protobuf's JSON form: OTLP writes the bytes of ids in
// hex, Protobuf writes all bytes in base64.
func hexIDsToBase64(body []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // times are integers of 64 bits
	var export map[string]any
	if err := d.Decode(&export); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON object")
	}
	if err := eachID(export); err != nil {
		return nil, err
	}
	return json.Marshal(export)
}

// eachID rewrites the ids in v and in all values that v contains.
func eachID(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if !isID(name) {
				if err := eachID(inner); err != nil {
					return err
				}
				continue
			}
			text, ok := inner.(string)
			if !ok {
				return fmt.Errorf("%s is not a text of hex digits", name)
			}
			id, err := hex.DecodeString(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("%s %.80q is not hex", name, text)
			}
			v[name] = base64.StdEncoding.EncodeToString(id)
		}
	case []any:
		for _, inner := range v {
			if err := eachID(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func isID(name string) bool {
	switch name {
	case "traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id":
		return true
	}
	return false
}
