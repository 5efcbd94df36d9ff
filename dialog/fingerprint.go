package dialog

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Fingerprint is a digest of what messages say, by which texts that were written down
// in two places are told to be the same: who speaks, the text but for its white space,
// and the tool calls by id and name. Thoughts, and what tool calls pass, have no part
// in it, since they are not written down everywhere. It is empty for no messages.
func Fingerprint(messages []Message) string {
	if len(messages) == 0 {
		return ""
	}
	var b strings.Builder
	add := func(text string) { b.WriteString(strconv.Itoa(len(text)) + ":" + text) }
	for _, m := range messages {
		add(string(m.Role))
		add(strings.Join(strings.Fields(m.Content), ""))
		add(m.ToolCallID)
		for _, c := range m.ToolCalls {
			add(c.ID)
			add(c.Function.Name)
		}
		b.WriteByte('\n')
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// Instructions are the system messages of a dialog, and rest is all others.
func Instructions(messages []Message) (instructions, rest []Message) {
	for _, m := range messages {
		if m.Role == System {
			instructions = append(instructions, m)
		} else {
			rest = append(rest, m)
		}
	}
	return instructions, rest
}

// Latest are the messages after the last of the assistant. The assistant goes on from
// a dialog that ends with its own message: all of that dialog is new.
func Latest(messages []Message) []Message {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == Assistant && i < len(messages)-1 {
			return messages[i+1:]
		}
		if messages[i].Role == Assistant {
			break
		}
	}
	return messages
}
