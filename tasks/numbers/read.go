package numbers

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// Read returns the number of which a text consists, apart from marks and the signs of
// currencies and percent. There is none if the text has anything else, such as words.
func Read(text string) (*big.Rat, bool) {
	found, rest := tokensOf(text)
	if len(found) != 1 || strings.ContainsFunc(rest, func(c rune) bool {
		return c == opaque || c == '-' || c == '+' || unicode.IsLetter(c) || unicode.IsDigit(c)
	}) {
		return nil, false
	}
	return found[0].value, found[0].value != nil
}

// Last returns the last number in a text. There is none if the last one is a part of
// something that is no number.
func Last(text string) (*big.Rat, bool) {
	found, _ := tokensOf(text)
	if len(found) == 0 {
		return nil, false
	}
	value := found[len(found)-1].value
	return value, value != nil
}

// Only returns the one number in a text, which may also have words. There is none if it
// has several.
func Only(text string) (*big.Rat, bool) {
	found, _ := tokensOf(text)
	if len(found) != 1 {
		return nil, false
	}
	return found[0].value, found[0].value != nil
}

// First returns the number with which a text begins, apart from marks, an equals sign and
// signs of currencies.
func First(text string) (*big.Rat, bool) {
	found, _ := tokensOf(text)
	if len(found) == 0 || found[0].value == nil || !beginning(found[0].before) {
		return nil, false
	}
	return found[0].value, true
}

// beginning reports whether nothing but marks and names of currencies, or a variable and
// an equals sign, stand in a text.
func beginning(text string) bool {
	if name, rest, equals := strings.Cut(text, "="); equals && len(strings.Fields(name)) <= 1 && len(strings.TrimSpace(name)) <= 3 {
		text = rest
	}
	words := strings.FieldsFunc(text, func(c rune) bool { return c != opaque && !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	for _, word := range words {
		switch strings.ToUpper(word) {
		case "USD", "US", "EUR", "GBP", "RS", "INR", "CAD", "AUD":
		default:
			return false
		}
	}
	return true
}

// found is a number in a text.
type found struct {
	before string   // the text before it, from the end of the number before that one
	value  *big.Rat // nil if it is a part of something that is no number
}

// tokensOf returns the numbers in a text, and the text without them.
func tokensOf(text string) (out []found, rest string) {
	s := &scanner{text: plain([]rune(text), deepest)}
	var all strings.Builder
	last := 0
	for s.at < len(s.text) {
		start := s.at
		if !isDigit(s.text[s.at]) && (s.text[s.at] != '.' || !isDigit(s.peek(1)) || isWord(s.peek(-1))) {
			s.at++
			continue
		}
		value, ok := s.number()
		end := s.at
		if s.partOfName(start) {
			for isWord(s.peek(0)) {
				s.at++
			}
			continue
		}
		if sign := s.signBefore(start, end); sign < start {
			if ok && s.text[sign] == '-' {
				value.Neg(value)
			}
			start = sign
		}
		if ok = ok && !s.operandBefore(start) && !s.operandAfter(end); ok {
			value, ok = s.scaled(value)
		}
		if !ok {
			value = nil
		}
		out = append(out, found{before: string(s.text[last:start]), value: value})
		_, _ = all.WriteString(string(s.text[last:start]) + " ")
		last = max(end, s.at)
		s.at = last
	}
	return out, all.String() + string(s.text[last:])
}

type scanner struct {
	text []rune
	at   int
}

func (s *scanner) peek(n int) rune { return runeAt(s.text, s.at+n) }

// number reads a number that begins here. It stops behind it also if it is none, such as
// 1.2.3.
func (s *scanner) number() (*big.Rat, bool) {
	start := s.at
	value, ok := s.decimal(true)
	switch {
	case s.over():
		below, ok2 := s.decimal(false)
		ok = ok && ok2 && below.Sign() != 0
		if ok {
			value.Quo(value, below)
		}
		for s.over() { // 3/4/2020
			_, _ = s.decimal(false)
			ok = false
		}
	case s.peek(0) == ' ' && isDigit(s.peek(1)):
		ok = s.mixed(value) && ok
	}
	if ok {
		s.powerOfTen(value, string(s.text[start:s.at]) == "10")
	}
	return value, ok
}

// decimal reads digits, with separators and, if it may have one, an exponent.
func (s *scanner) decimal(exponent bool) (*big.Rat, bool) {
	start := s.at
	for isDigit(s.peek(0)) || (s.peek(0) == '.' || s.peek(0) == ',') && isDigit(s.peek(1)) {
		s.at++
	}
	for s.peek(0) == ' ' && s.at-start <= 3 && s.group() && !strings.ContainsAny(string(s.text[start:s.at]), ".,") { // 9 500
		for s.peek(0) == ' ' && s.group() {
			s.at += 4
		}
		if s.peek(0) == '.' && isDigit(s.peek(1)) {
			for s.at++; isDigit(s.peek(0)); s.at++ {
			}
		}
	}
	if e := s.peek(0); exponent && (e == 'e' || e == 'E') {
		n := 1
		if s.peek(n) == '+' || s.peek(n) == '-' {
			n++
		}
		if isDigit(s.peek(n)) {
			for isDigit(s.peek(n)) {
				n++
			}
			s.at += n
		}
	}
	return decimal(strings.ReplaceAll(string(s.text[start:s.at]), " ", ""))
}

// group reports whether a blank and three digits follow, and then no digit.
func (s *scanner) group() bool {
	return isDigit(s.peek(1)) && isDigit(s.peek(2)) && isDigit(s.peek(3)) && !isDigit(s.peek(4)) && s.peek(4) != '/'
}

// over skips a slash between two numbers.
func (s *scanner) over() bool {
	n := 0
	for s.peek(n) == ' ' {
		n++
	}
	if s.peek(n) != '/' {
		return false
	}
	for n++; s.peek(n) == ' '; n++ {
	}
	if !isDigit(s.peek(n)) {
		return false
	}
	s.at += n
	return true
}

// mixed adds a fraction that follows a whole number after a blank: 2 1/2. It reports false
// if a fraction follows that can't be added. If a number follows that is no fraction, it
// reads nothing.
func (s *scanner) mixed(whole *big.Rat) bool {
	start := s.at
	s.at++
	above, ok := s.decimal(false)
	if !s.over() {
		s.at = start
		return true
	}
	below, ok2 := s.decimal(false)
	if !ok || !ok2 || whole == nil || !whole.IsInt() || above.Cmp(below) >= 0 {
		return false
	}
	whole.Add(whole, above.Quo(above, below))
	return true
}

// powerOfTen multiplies a number by the power of ten that follows: × 10^6. If the number
// is a ten, its exponent may follow, too.
func (s *scanner) powerOfTen(value *big.Rat, ten bool) {
	start := s.at
	skip := func() {
		for s.peek(0) == ' ' {
			s.at++
		}
	}
	if ten = ten && s.peek(0) == '^'; !ten {
		skip()
		if !strings.ContainsRune("×xX*·", s.peek(0)) {
			s.at = start
			return
		}
		s.at++
		skip()
		if s.peek(0) != '1' || s.peek(1) != '0' || s.peek(2) != '^' {
			s.at = start
			return
		}
		s.at += 2
	}
	s.at++ // the ^
	skip()
	bracket := s.peek(0) == '('
	if bracket {
		s.at++
	}
	from := s.at
	if s.peek(0) == '-' || s.peek(0) == '+' {
		s.at++
	}
	for isDigit(s.peek(0)) {
		s.at++
	}
	power, ok := decimal("1e" + string(s.text[from:s.at]))
	if bracket && s.peek(0) == ')' {
		s.at++
	}
	switch {
	case !ok:
		s.at = start
	case ten:
		value.Set(power)
	default:
		value.Mul(value, power)
	}
}

// scaled multiplies a number by the word that follows it, such as million.
func (s *scanner) scaled(value *big.Rat) (*big.Rat, bool) {
	n := 0
	for s.peek(n) == ' ' {
		n++
	}
	start := n
	for isLetter(s.peek(n)) {
		n++
	}
	word := string(s.text[s.at+start : s.at+n])
	zeros := map[string]string{"hundred": "1e2", "thousand": "1e3", "million": "1e6", "billion": "1e9", "trillion": "1e12"}[strings.ToLower(word)]
	switch {
	case zeros != "":
		by, _ := decimal(zeros)
		s.at += n
		return value.Mul(value, by), true
	case start == 0 && (word == "k" || word == "K" || word == "M" || word == "B"):
		return nil, false // thousands, or something else
	}
	return value, true
}

// partOfName reports whether a number that begins at start belongs to a name: A4, GPT-4,
// x_2 or the exponent of a unit, cm^2.
func (s *scanner) partOfName(start int) bool {
	before := runeAt(s.text, start-1)
	switch before {
	case '-', '^', '.':
		return isLetter(runeAt(s.text, start-2))
	case '_':
		return isWord(runeAt(s.text, start-2)) && !isDigit(runeAt(s.text, start-2))
	}
	return isLetter(before)
}

// signBefore returns where a number begins with its sign and the sign of its currency. A
// blank may stand between them if there is nothing else.
func (s *scanner) signBefore(start, end int) int {
	if lead := strings.TrimSpace(string(s.text[:min(start, 20)])); lead == "-" && strings.TrimSpace(string(s.text[end:min(len(s.text), end+20)])) == "" {
		return strings.IndexRune(string(s.text[:start]), '-')
	}
	at := start - 1
	money := at
	for runeAt(s.text, money) == ' ' {
		money--
	}
	if strings.ContainsRune("$€£¥₹₽₩", runeAt(s.text, money)) && runeAt(s.text, money) != 0 {
		at = money - 1
		start = money
	}
	sign := runeAt(s.text, at)
	if sign != '-' && sign != '+' {
		return start
	}
	before := runeAt(s.text, at-1)
	switch {
	case before == '-' || before == '+' || before == ')' || before == ']' || before == '%' || before == '.' || before == opaque || isWord(before):
		return start // an operator, or a part of a dash
	case before == ' ' && s.operandBefore(at+1):
		return start
	}
	return at
}

const operators = "+-*×·/÷^±"

// operandBefore reports whether an operator with an operand stands before a place, or
// something else to which the number there belongs.
func (s *scanner) operandBefore(place int) bool {
	before := runeAt(s.text, place-1)
	if before == opaque || before == ')' || before == ',' || isDigit(before) || before == '_' && isWord(runeAt(s.text, place-2)) {
		return true
	}
	if (before == ':' || before == '.') && isDigit(runeAt(s.text, place-2)) {
		return true
	}
	at := place - 1
	for runeAt(s.text, at) == ' ' {
		at--
	}
	operator := runeAt(s.text, at)
	switch {
	case operator == opaque || operator == '±' || operator == '^':
		return true
	case operator == 'x' || operator == 'X': // 3 x 24
		if isWord(runeAt(s.text, at-1)) && !isDigit(runeAt(s.text, at-1)) {
			return false
		}
	case operator == 0 || !strings.ContainsRune(operators, operator):
		return false
	}
	at--
	for runeAt(s.text, at) == ' ' {
		at--
	}
	return s.operand(at, -1)
}

// operandAfter reports whether an operator with an operand follows a place, or something
// else to which the number there belongs.
func (s *scanner) operandAfter(place int) bool {
	at := place
	next := runeAt(s.text, at)
	switch {
	case next == opaque || next == '_' && isWord(runeAt(s.text, at+1)) || next == '(' && isDigit(runeAt(s.text, at+1)):
		return true
	case (next == '.' || next == ':') && (isDigit(runeAt(s.text, at+1)) || runeAt(s.text, at+1) == opaque):
		return true
	case isLetter(next):
		for isLetter(runeAt(s.text, at)) {
			at++
		}
		short := at-place == 1 && next != 'm'
		return isWord(runeAt(s.text, at)) || runeAt(s.text, at) == '^' && short
	}
	for runeAt(s.text, at) == ' ' {
		at++
	}
	operator := runeAt(s.text, at)
	if operator == opaque || operator == '^' || operator == '±' {
		return true
	}
	if operator == 0 || !strings.ContainsRune(operators, operator) {
		return false
	}
	at++
	for runeAt(s.text, at) == ' ' {
		at++
	}
	return s.operand(at, 1)
}

// operand reports whether there is an operand at a place: a digit, a bracket, or a letter
// that is a variable. step is the direction in which the operand goes on.
func (s *scanner) operand(at, step int) bool {
	c := runeAt(s.text, at)
	switch {
	case c == 0:
		return false
	case isDigit(c), c == opaque, step < 0 && (c == ')' || c == '%' || c == ']'), step > 0 && (c == '(' || c == '$'):
		return true
	}
	beyond := runeAt(s.text, at+step)
	return isLetter(c) && c != 'a' && c != 'I' && !isLetter(beyond) && beyond != '_'
}

func isWord(c rune) bool { return c == '_' || isLetter(c) || isDigit(c) }

const (
	longest     = 4096 // characters of a number
	maxExponent = 400
)

// decimal returns the exact value of a decimal number without a sign, in which commas may
// separate thousands.
func decimal(text string) (*big.Rat, bool) {
	text, ok := withoutSeparators(text)
	if !ok || text == "" || len(text) > longest || strings.Trim(text, "0123456789+-.eE") != "" {
		return nil, false
	}
	if e := strings.IndexAny(text, "eE"); e >= 0 {
		if n, err := strconv.Atoi(text[e+1:]); err != nil || n > maxExponent || n < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

// withoutSeparators removes the commas from a number. It reports whether they stand where
// they separate thousands.
func withoutSeparators(text string) (string, bool) {
	whole, rest := text, ""
	if dot := strings.IndexAny(text, ".eE"); dot >= 0 {
		whole, rest = text[:dot], text[dot:]
	}
	groups := strings.Split(whole, ",")
	for i, group := range groups {
		if len(groups) > 1 && (i > 0 && len(group) != 3 || i == 0 && (len(group) == 0 || len(group) > 3)) {
			return text, false
		}
	}
	return strings.Join(groups, "") + rest, true
}
