package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/prompts"
)

// Reply is what a reflector replied.
type Reply struct {
	Text string
	// CutOff says that the reply ended because it was too long.
	CutOff bool
}

// Rules say which new texts of a prompt are refused.
type Rules struct {
	// Placeholders are the names that the prompt declares (prompts.Prompt). A new text must
	// have each of them and no other. Without any, braces mean nothing.
	Placeholders []string
	// Current is the text that the new one replaces.
	Current string
	// Answers are those of the tasks that the reflector saw or that the search measures
	// with.
	Answers []string
	// Verbatim is the least number of characters of an answer that may not be copied. 0
	// allows copies.
	Verbatim int
	// MaxBytes is the largest number of bytes of a text, prompts.max_bytes. 0 allows any
	// number.
	MaxBytes int
}

// ReadText returns the new text in a reply to Reflect or Edit, or why there is none. The
// text stands between the first and the last line that begin with three backticks, so it
// may have such lines itself. What a model thought before its reply is skipped.
func ReadText(reply Reply, rules Rules) (text string, why Refusal) {
	body, why := readable(reply)
	if why != "" {
		return "", why
	}
	text, why = fenced(body)
	switch {
	case why != "":
		return "", why
	case reply.CutOff:
		return "", RefusedCutOff // the last fence may have been one of the text's own
	}
	return text, rules.refuse(text)
}

// ReadCritique returns the critique in a reply, or why there is none.
func ReadCritique(reply Reply) (text string, why Refusal) {
	text, why = readable(reply)
	if why == "" && reply.CutOff {
		why = RefusedCutOff
	}
	if why != "" {
		return "", why
	}
	return text, ""
}

// thoughts ends what a model thinks before its reply.
const thoughts = "</think>"

// readable returns the reply without thoughts and spaces around it.
func readable(reply Reply) (text string, why Refusal) {
	text = reply.Text
	if at := strings.LastIndex(text, thoughts); at >= 0 {
		text = text[at+len(thoughts):]
	} else if strings.HasPrefix(strings.TrimSpace(text), "<think>") {
		return "", RefusedCutOff
	}
	if text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")); text == "" {
		if reply.CutOff {
			return "", RefusedCutOff
		}
		return "", RefusedEmpty
	}
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		return "", RefusedUnreadable
	}
	start := strings.ToLower(text[:min(len(text), 20)])
	if strings.HasPrefix(start, "<!doctype") || strings.HasPrefix(start, "<html") {
		return "", RefusedMarkup
	}
	return text, ""
}

// fenced returns the text between the outermost fences. A text may begin on the line of the
// first fence, if it is more than the name of a language. Without a closing fence on a line
// of its own, one at the very end counts.
func fenced(text string) (inside string, why Refusal) {
	lines := strings.Split(text, "\n")
	isFence := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), fence) }
	first := slices.IndexFunc(lines, isFence)
	if first < 0 {
		return "", RefusedNoFence
	}
	begun := strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(lines[first]), "`"))
	if lines = lines[first+1:]; strings.ContainsAny(begun, " \t`") {
		lines = append([]string{begun}, lines...)
	}
	last := len(lines) - 1
	for last >= 0 && !isFence(lines[last]) {
		last--
	}
	end := len(lines) - 1 // text has no space at its end
	switch {
	case last >= 0 && strings.Trim(strings.TrimSpace(lines[last]), "`") == "":
		lines = lines[:last]
	case end >= 0 && !isFence(lines[end]) && strings.HasSuffix(lines[end], fence):
		lines[end] = strings.TrimRight(lines[end], "`")
	default: // there is none, or the last one has a language behind it, so it opens one
		return "", RefusedCutOff
	}
	inside = strings.TrimSpace(strings.Join(lines, "\n"))
	if inside == "" {
		return "", RefusedEmpty
	}
	return inside, ""
}

func (r Rules) refuse(text string) Refusal {
	switch {
	case r.copies(text):
		return RefusedCopies
	case strings.Contains(text, reference):
		return RefusedUnknown // no prompt is put into a prompt
	case r.MaxBytes > 0 && len(text) > r.MaxBytes:
		return RefusedTooLong
	case len(r.Placeholders) == 0:
		return ""
	}
	switch found := prompts.Placeholders(text); {
	case len(lacks(r.Placeholders, found)) > 0:
		return RefusedUnknown
	case len(lacks(found, r.Placeholders)) > 0:
		return RefusedLost
	}
	return ""
}

// copies reports whether the text has an answer that the current text does not have.
func (r Rules) copies(text string) bool {
	return r.Verbatim > 0 && slices.ContainsFunc(r.Answers, func(answer string) bool {
		answer = strings.TrimSpace(answer)
		return utf8.RuneCountInString(answer) >= r.Verbatim && strings.Contains(text, answer) && !strings.Contains(r.Current, answer)
	})
}

// reference begins a reference to another prompt, which package prompts refuses in a prompt.
const reference = "{{prompt:"

// lacks returns the names of other that are not among names.
func lacks(names, other []string) []string {
	return slices.DeleteFunc(slices.Clone(other), func(name string) bool { return slices.Contains(names, name) })
}
