package dialog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// TemplatePrefix begins the names of codecs that a Bundle makes; the digest of the
// encoded bundle follows.
const TemplatePrefix = "template:"

// ErrBundle is wrapped by errors about a model directory or a bundle that gives no
// codec, saying what to change.
var ErrBundle = errors.New("bad codec bundle")

// Bundle is what the codec of a published model is made of: everything of its
// directory that decides which tokens a dialog becomes, in one piece that can be
// stored under the digest of its bytes.
type Bundle struct {
	// Tokenizer is the tokenizer.json.
	Tokenizer json.RawMessage `json:"tokenizer"`
	// Template is the chat template; ToolTemplate, if not empty, takes its place
	// where tools are offered.
	Template     string `json:"template"`
	ToolTemplate string `json:"tool_template,omitempty"`
	// Special are the special tokens by the names that templates have for them, such
	// as bos_token.
	Special map[string]string `json:"special_tokens,omitempty"`
	// Stop are the tokens that end a completion, besides the one with which the
	// template ends a turn.
	Stop []int32 `json:"stop,omitempty"`
	// VocabSize is the number of rows of the model's embedding, which may be more
	// than the tokenizer has tokens; 0 is the tokenizer's number.
	VocabSize int `json:"vocab_size,omitempty"`
	// ToolParser names the format of tool calls; empty is what the template shows.
	ToolParser string `json:"tool_parser,omitempty"`
	// Variables is an object of further variables for the template, such as
	// enable_thinking.
	Variables json.RawMessage `json:"variables,omitempty"`
	// Date is the day, such as 2024-07-26, that templates are told it is. A codec
	// has no clock: equal dialogs have equal tokens on any day.
	Date string `json:"date,omitempty"`
}

// Encode gives the bundle's bytes; equal bundles have equal ones.
func (b Bundle) Encode() ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode codec bundle: %w", err)
	}
	return text, nil
}

// DecodeBundle inverts Encode.
func DecodeBundle(text []byte) (Bundle, error) {
	var b Bundle
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return Bundle{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	return b, nil
}

// BundleName is the name of the codec that an encoded bundle makes.
func BundleName(encoded []byte) string {
	digest := sha256.Sum256(encoded)
	return TemplatePrefix + "sha256:" + hex.EncodeToString(digest[:])
}
