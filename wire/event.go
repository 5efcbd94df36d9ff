package wire

import "bytes"

// events are server-sent events in the making.
type events struct{ bytes.Buffer }

// add writes an event; Chat and Completions give theirs no name.
func (e *events) add(name string, v any) {
	if name != "" {
		e.WriteString("event: " + name + "\n")
	}
	e.WriteString("data: ")
	e.Write(marshal(v)) // one line: JSON escapes those within texts
	e.WriteString("\n\n")
}

// done tells that nothing follows, as Chat and Completions do.
func (e *events) done() { e.WriteString("data: [DONE]\n\n") }

// comment writes what clients skip.
func (e *events) comment(text string) { e.WriteString(": " + text + "\n\n") }
