package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

// protocol is an API as a client sees it.
type protocol struct {
	api  wire.API
	path string
	// asking returns a request for a reply to text, with more as its other fields.
	asking func(text, more string) string
	// said returns the text of a whole reply, eventText that of one event.
	said      func(t *testing.T, body string) string
	eventText func(event map[string]any) string
	end       string // text that only the last event has
}

func protocols() []protocol {
	return []protocol{
		{
			wire.Chat, "/v1/chat/completions",
			func(text, more string) string {
				return fmt.Sprintf(`{"model":"m",%s"messages":[{"role":"user","content":%q}]}`, more, text)
			},
			content,
			func(e map[string]any) string { return textAt(e, "choices", 0, "delta", "content") },
			"[DONE]",
		},
		{
			wire.Completions, "/v1/completions",
			func(text, more string) string { return fmt.Sprintf(`{"model":"m",%s"prompt":%q}`, more, text) },
			func(t *testing.T, body string) string { return textAt(object(t, body), "choices", 0, "text") },
			func(e map[string]any) string { return textAt(e, "choices", 0, "text") },
			"[DONE]",
		},
		{
			wire.Responses, "/v1/responses",
			func(text, more string) string { return fmt.Sprintf(`{"model":"m",%s"input":%q}`, more, text) },
			func(t *testing.T, body string) string {
				return textAt(object(t, body), "output", 0, "content", 0, "text")
			},
			func(e map[string]any) string {
				if e["type"] != "response.output_text.delta" {
					return ""
				}
				return textAt(e, "delta")
			},
			"response.completed",
		},
		{
			wire.Messages, "/v1/messages",
			func(text, more string) string {
				return fmt.Sprintf(`{"model":"m","max_tokens":100,%s"messages":[{"role":"user","content":%q}]}`, more, text)
			},
			func(t *testing.T, body string) string { return textAt(object(t, body), "content", 0, "text") },
			func(e map[string]any) string { return textAt(e, "delta", "text") },
			"message_stop",
		},
	}
}

// onProtocols tests a claim for each API, except those in but.
func onProtocols(t *testing.T, claim func(t *testing.T, p protocol), but ...wire.API) {
	t.Helper()
	for _, p := range protocols() {
		if slices.Contains(but, p.api) {
			continue
		}
		t.Run(string(p.api), func(t *testing.T) {
			t.Parallel()
			claim(t, p)
		})
	}
}

func (p protocol) streaming(text string) string { return p.asking(text, `"stream":true,`) }

func object(t *testing.T, body string) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &o), body)
	return o
}

// textAt returns the text at a path, "" if there is none.
func textAt(v any, path ...any) string {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(map[string]any)
			v = o[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return ""
			}
			v = l[step]
		}
	}
	s, _ := v.(string)
	return s
}

// events returns the data of a stream's events, without keepalives.
func events(t *testing.T, stream string) []map[string]any {
	t.Helper()
	var all []map[string]any
	lines := bufio.NewScanner(strings.NewReader(stream))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		all = append(all, object(t, data))
	}
	return all
}

// streamedText returns the text of a stream.
func (p protocol) streamedText(t *testing.T, stream string) string {
	t.Helper()
	var all strings.Builder
	for _, e := range events(t, stream) {
		all.WriteString(p.eventText(e))
	}
	return all.String()
}

// withoutKeepalives returns the part of a stream that is promised to be the same whenever
// it is asked for.
func withoutKeepalives(stream string) string {
	var rest strings.Builder
	for block := range strings.SplitAfterSeq(stream, "\n\n") {
		if !strings.HasPrefix(block, ":") && !strings.HasPrefix(block, "event: ping") {
			rest.WriteString(block)
		}
	}
	return rest.String()
}
