package harbor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// instruction is an instruction of a Dockerfile. Its form is defined in
// https://docs.docker.com/reference/dockerfile/.
type instruction struct {
	line  int    // where it begins, from 1
	name  string // in capitals
	flags []string
	rest  string // what follows the flags
	// here is true if the instruction has here-documents, whose lines are left out.
	here bool
}

var (
	directive    = regexp.MustCompile(`^#[ \t]*([A-Za-z]+)[ \t]*=[ \t]*(.+?)[ \t]*$`)
	hereDocument = regexp.MustCompile(`<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)(["']?)`)
)

// readInstructions reads a Dockerfile. escape is the character that escapes others.
func readInstructions(r io.Reader) (list []instruction, escape rune, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	p := instructions{escape: '\\'}
	directives := true
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if directives {
			if m := directive.FindStringSubmatch(line); m != nil {
				// docker takes an unknown directive for a comment, after which there are none.
				directives = slices.Contains([]string{"syntax", "escape", "check"}, strings.ToLower(m[1]))
				if strings.EqualFold(m[1], "escape") {
					if m[2] != `\` && m[2] != "`" {
						return nil, 0, fmt.Errorf("line %d: the escape character is %q: docker allows \\ and `", number, m[2])
					}
					p.escape = rune(m[2][0])
				}
				continue
			}
			directives = false
		}
		p.add(line, number)
	}
	p.end()
	return p.list, p.escape, lines.Err()
}

// instructions collects instructions from lines.
type instructions struct {
	list   []instruction
	escape rune
	text   string // of an instruction that the next line continues
	first  int    // its line
	open   bool
	here   []string // words that end here-documents which are open
	tabs   []bool   // whether tabs before these words are ignored
}

func (p *instructions) add(line string, number int) {
	if len(p.here) > 0 {
		if p.tabs[0] {
			line = strings.TrimLeft(line, "\t")
		}
		if line == p.here[0] {
			p.here, p.tabs = p.here[1:], p.tabs[1:]
		}
		return
	}
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || strings.HasPrefix(trimmed, "#") { // comments and blank lines don't end an instruction
		return
	}
	if !p.open {
		p.text, p.first, p.open = "", number, true
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
	}
	if part, more := strings.CutSuffix(strings.TrimRight(line, " \t\r"), string(p.escape)); more {
		p.text += part
		return
	}
	p.text += line
	p.end()
}

// end ends an instruction.
func (p *instructions) end() {
	if !p.open {
		return
	}
	p.open = false
	name, rest := cutSpace(strings.TrimSpace(p.text))
	i := instruction{line: p.first, name: strings.ToUpper(name), rest: rest}
	for strings.HasPrefix(i.rest, "--") {
		var flag string
		flag, i.rest = cutSpace(i.rest)
		if flag == "--" {
			break
		}
		i.flags = append(i.flags, flag)
	}
	if i.name == "RUN" || i.name == "COPY" || i.name == "ADD" {
		for _, m := range hereDocument.FindAllStringSubmatch(i.rest, -1) {
			if m[2] == m[4] {
				p.here, p.tabs, i.here = append(p.here, m[3]), append(p.tabs, m[1] != ""), true
			}
		}
	}
	p.list = append(p.list, i)
}

// cutSpace returns the first word of a text and what follows the blanks after it.
func cutSpace(text string) (word, rest string) {
	at := strings.IndexFunc(text, unicode.IsSpace)
	if at < 0 {
		return text, ""
	}
	return text[:at], strings.TrimLeftFunc(text[at:], unicode.IsSpace)
}

// listOf returns the texts of a JSON list or, if the text is none, the words between
// blanks.
func listOf(text string) []string {
	var out []string
	if strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &out) == nil {
		return out
	}
	return strings.Fields(text)
}

// wordsOf splits a text at blanks. Blanks in quotes and escaped ones belong to a word,
// which keeps its quotes and escapes.
func wordsOf(text string, escape rune) []string {
	var words []string
	var word strings.Builder
	var quote rune
	escaped, inside := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == escape:
			escaped, inside = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote, inside = c, true
		case unicode.IsSpace(c):
			if inside {
				words = append(words, word.String())
				word.Reset()
				inside = false
			}
			continue
		default:
			inside = true
		}
		word.WriteRune(c)
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}
