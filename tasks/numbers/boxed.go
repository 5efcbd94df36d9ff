package numbers

import "strings"

// Boxed returns what stands in the last \boxed{…} or \fbox{…} of a text, or, as in
// \boxed 7, the word behind it. A box that is never closed is none.
func Boxed(text string) (string, bool) {
	for {
		at := max(strings.LastIndex(text, `\boxed`), strings.LastIndex(text, `\fbox`))
		if at < 0 {
			return "", false
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(text[at:], `\boxed`), `\fbox`)
		switch content := strings.TrimLeft(rest, " "); {
		case strings.HasPrefix(content, "{"):
			if inner, ok := balanced([]rune(content), '{', '}'); ok {
				return string(inner), true
			}
		case rest != content: // a word
			if words := strings.FieldsFunc(content, func(c rune) bool { return c == ' ' || c == '$' || c == '\n' }); len(words) > 0 {
				return words[0], true
			}
		}
		text = text[:at]
	}
}
