package harbor

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// expander replaces variables in a word of a Dockerfile and removes its quotes, as docker
// does for all instructions but RUN, CMD and ENTRYPOINT.
type expander struct {
	escape rune
	value  func(name string) (text string, ok bool)

	rest []rune
}

// expand returns a word with its variables replaced.
func (e expander) expand(word string) (string, error) {
	e.rest = []rune(word)
	return e.until(0)
}

// until reads up to a closing character, or to the end if that is 0.
func (e *expander) until(end rune) (string, error) {
	var out strings.Builder
	for len(e.rest) > 0 {
		c := e.next()
		switch {
		case c == end && end != 0:
			return out.String(), nil
		case c == '\'':
			text, err := e.single()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == '"':
			text, err := e.double()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == e.escape:
			if len(e.rest) > 0 {
				out.WriteRune(e.next())
			}
		default:
			out.WriteRune(c)
		}
	}
	if end != 0 {
		return "", fmt.Errorf("no closing %c", end)
	}
	return out.String(), nil
}

func (e *expander) next() rune {
	c := e.rest[0]
	e.rest = e.rest[1:]
	return c
}

// single reads the rest of a text in single quotes, in which nothing is special.
func (e *expander) single() (string, error) {
	for i, c := range e.rest {
		if c == '\'' {
			text := string(e.rest[:i])
			e.rest = e.rest[i+1:]
			return text, nil
		}
	}
	return "", errors.New("no closing '")
}

// double reads the rest of a text in double quotes.
func (e *expander) double() (string, error) {
	var out strings.Builder
	for len(e.rest) > 0 {
		c := e.next()
		switch {
		case c == '"':
			return out.String(), nil
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == e.escape && len(e.rest) > 0:
			if after := e.rest[0]; after != '"' && after != '$' && after != e.escape {
				out.WriteRune(c)
			}
			out.WriteRune(e.next())
		default:
			out.WriteRune(c)
		}
	}
	return "", errors.New(`no closing "`)
}

// variable reads what follows a $.
func (e *expander) variable() (string, error) {
	if len(e.rest) == 0 || e.rest[0] != '{' {
		name := e.name()
		if name == "" {
			return "$", nil
		}
		text, _ := e.value(name)
		return text, nil
	}
	e.next()
	name := e.name()
	if name == "" || len(e.rest) == 0 {
		return "", errors.New("a variable without a name or without a closing }")
	}
	text, set := e.value(name)
	c := e.next()
	if c == '}' {
		return text, nil
	}
	if c == ':' && len(e.rest) > 0 {
		set = set && text != ""
		c = e.next()
	}
	if !strings.ContainsRune("-+?", c) {
		return "", fmt.Errorf("${%s%c…}: of the modifiers of a variable only -, + and ? are supported without a container", name, c)
	}
	word, err := e.until('}')
	switch {
	case err != nil:
		return "", err
	case c == '+' && set:
		return word, nil
	case c == '+':
		return "", nil
	case set:
		return text, nil
	case c == '?':
		return "", fmt.Errorf("the variable %s is not set: %s", name, word)
	}
	return word, nil
}

// name reads the name of a variable: a word, or one digit or sign.
func (e *expander) name() string {
	if len(e.rest) == 0 {
		return ""
	}
	if c := e.rest[0]; unicode.IsDigit(c) || strings.ContainsRune("@*#?!$", c) {
		return string(e.next())
	}
	n := 0
	for n < len(e.rest) && (e.rest[n] == '_' || e.rest[n] < unicode.MaxASCII && (unicode.IsLetter(e.rest[n]) || unicode.IsDigit(e.rest[n]))) {
		n++
	}
	name := string(e.rest[:n])
	e.rest = e.rest[n:]
	return name
}
