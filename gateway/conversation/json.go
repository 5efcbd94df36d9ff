package conversation

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sameJSON reports whether two texts are the same JSON value, whatever their spaces, the
// order of their names, their escapes and the spelling of their numbers: programs that
// read JSON and write it again change all of these. Numbers are compared exactly. No text
// and null are the empty object, since that is how clients write a call without arguments.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	x, readable := argumentsOf(a)
	y, too := argumentsOf(b)
	return readable && too && sameValue(x, y)
}

func argumentsOf(text string) (value any, ok bool) {
	if strings.TrimSpace(text) == "" {
		return map[string]any{}, true
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
		return nil, false
	}
	if value == nil {
		value = map[string]any{}
	}
	return value, true
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && decimalOf(a.String()) == decimalOf(b.String())
	}
	return a == b // texts, truth values and null
}

// decimal is the number 0.DIGITS · 10^exponent, without zeros at either end of the digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
	odd      string // the number itself if its exponent is beyond any machine's
}

// decimalOf returns the one form of a JSON number in which equal numbers are equal.
func decimalOf(number string) decimal {
	text, negative := strings.CutPrefix(number, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return decimal{odd: number}
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent += len(whole)
	digits := whole + fraction
	short := strings.TrimLeft(digits, "0")
	exponent -= len(digits) - len(short)
	if short = strings.TrimRight(short, "0"); short == "" {
		return decimal{} // zero has no sign: JavaScript writes -0 as 0
	}
	return decimal{negative: negative, digits: short, exponent: exponent}
}
