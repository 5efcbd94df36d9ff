package jinja_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/jinja"
)

func hermes(b *testing.B) string {
	source, err := os.ReadFile(filepath.Join("golden", "templates", "hermes.jinja"))
	require.NoError(b, err)
	return string(source)
}

// dialogOf returns a dialog of n messages, with tool calls and results.
func dialogOf(n int) jinja.Value {
	text := func(key, value string) jinja.Member { return jinja.Member{Key: key, Value: jinja.String(value)} }
	arguments := jinja.Object(text("city", "Paris"), jinja.Member{Key: "days", Value: jinja.Int(2)})
	call := jinja.Object(text("type", "function"), jinja.Member{Key: "function", Value: jinja.Object(
		text("name", "get_weather"), jinja.Member{Key: "arguments", Value: arguments})})
	messages := []jinja.Value{jinja.Object(text("role", "system"), text("content", "You are helpful."))}
	for i := 1; i < n; i++ {
		switch i % 4 {
		case 1:
			messages = append(messages, jinja.Object(text("role", "user"), text("content", fmt.Sprintf("Question %d about the weather", i))))
		case 2:
			messages = append(messages, jinja.Object(text("role", "assistant"), text("content", ""),
				jinja.Member{Key: "tool_calls", Value: jinja.List(call)}))
		case 3:
			messages = append(messages, jinja.Object(text("role", "tool"), text("content", "21 degrees and some clouds")))
		case 0:
			messages = append(messages, jinja.Object(text("role", "assistant"), text("content", "It is 21 degrees."),
				text("reasoning_content", "The tool said so.")))
		}
	}
	return jinja.Object(
		jinja.Member{Key: "messages", Value: jinja.List(messages...)},
		jinja.Member{Key: "add_generation_prompt", Value: jinja.Bool(true)},
	)
}

// BenchmarkRender renders a template of 4,000 letters with 20 messages.
func BenchmarkRender(b *testing.B) {
	template, err := jinja.Parse(hermes(b))
	require.NoError(b, err)
	variables := dialogOf(20)
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		text, err := template.Render(variables, golden())
		require.NoError(b, err)
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes")
}

func BenchmarkParse(b *testing.B) {
	source := hermes(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := jinja.Parse(source)
		require.NoError(b, err)
	}
}
