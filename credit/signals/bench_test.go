package signals_test

import (
	"strings"
	"testing"

	"github.com/fulgurite/fulgurite/credit/signals"
)

// Each iteration reads an attempt of twenty calls, whose dialog grows by a paragraph per
// call.
func BenchmarkOf(b *testing.B) {
	var a signals.Attempt
	dialog := []string{"system: play", "user: go"}
	for seq := range 20 {
		c := asking(dialog...)
		c.Seq, c.Parent, c.ID = seq, seq-1, call(seq, "").ID
		c.Response = call(seq, `{"x":1}`).Response
		a.History = append(a.History, c)
		a.Spans = append(a.Spans, tool(seq, "", seq%3 == 0))
		dialog = append(dialog, "assistant: f(1)", "tool: "+strings.Repeat("what the tool said ", 20))
	}
	b.ReportAllocs()
	for b.Loop() {
		signals.Of(a)
	}
}
