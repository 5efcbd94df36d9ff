package schema

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// types is a set of JSON types. A number is an integer or a fraction.
type types uint8

const (
	null types = 1 << iota
	boolean
	integer
	fraction
	text
	array
	object

	number   = integer | fraction
	anything = null | boolean | number | text | array | object
)

// typesNamed returns the types that a value of the keyword "type" names.
func typesNamed(name string) types {
	return map[string]types{
		"null": null, "boolean": boolean, "integer": integer, "number": number, "string": text, "array": array, "object": object,
	}[name]
}

// restricts reports whether a schema restricts values itself, apart from the schemas that
// it refers to.
func (d *document) restricts() bool {
	held := []string{"type", "enum", "const", "pattern", "format",
		"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
		"properties", "required", "additionalProperties", "prefixItems", "items", "additionalItems"}
	return slices.ContainsFunc(d.members, func(m member) bool { return slices.Contains(held, m.name) || refused(m.name) != 0 })
}

// refused returns the types of the values that a keyword restricts, if the keyword
// restricts values and is not supported. A keyword that is neither here nor read by other
// functions is an annotation.
func refused(keyword string) types {
	switch keyword {
	case "not", "if", "$dynamicRef", "$recursiveRef", "extends", "disallow":
		return anything
	case "multipleOf", "divisibleBy":
		return number
	case "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired",
		"dependentSchemas", "dependencies", "unevaluatedProperties":
		return object
	case "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems":
		return array
	}
	return 0
}

// count reads a number of characters or items.
func (d *document) count() (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(d.text, ".0"))
	if d.kind != '0' || err != nil || n < 0 || n > 1<<30 {
		return 0, d.refuse("want a whole number of at least 0")
	}
	return n, nil
}

// number reads a number exactly.
func (d *document) number() (*big.Rat, error) {
	if d.kind != '0' {
		return nil, d.refuse("want a number")
	}
	// A short text can be a number of a million digits.
	_, exponent, _ := strings.Cut(strings.ToLower(d.text), "e")
	if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || e < -400 || e > 400) || len(d.text) > 400 {
		return nil, d.refuse("number out of range")
	}
	n, ok := new(big.Rat).SetString(d.text)
	if !ok {
		return nil, d.refuse("want a number")
	}
	return n, nil
}
