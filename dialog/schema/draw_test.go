package schema_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// drawn is a schema, with a function that draws the text of one of its values. The text
// has the members in the order of the schema, and no white space.
type drawn struct {
	schema string
	value  func(t *rapid.T) string
}

// drawSchema draws a schema of the subset that refers to itself and to others.
func drawSchema(t *rapid.T) drawn {
	tree := drawSome(t, 2)
	leaf := drawScalar(t)
	// A list of trees that ends with null.
	node := drawn{
		`{"type":"object","properties":{"leaf":{"$ref":"#/$defs/leaf"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}`,
		func(t *rapid.T) string {
			text := `{"next":null}`
			for range rapid.IntRange(0, 4).Draw(t, "length") {
				text = `{"leaf":` + leaf.value(t) + `,"next":` + text + `}`
			}
			return text
		},
	}
	root := object([]property{{"tree", tree, true}, {"list", drawn{`{"$ref":"#/$defs/node"}`, node.value}, false}}, "false", nil)
	root.schema = strings.TrimSuffix(root.schema, "}") + `,"$defs":{"node":` + node.schema + `,"leaf":` + leaf.schema + `},"title":"A root","$schema":"https://json-schema.org/draft/2020-12/schema"}`
	return root
}

func drawSome(t *rapid.T, depth int) drawn {
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "scalar") == 0 {
		return drawScalar(t)
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return drawArray(t, depth)
	case 1:
		return drawTuple(t, depth)
	case 2:
		one, other := drawSome(t, depth-1), drawSome(t, depth-1)
		return drawn{`{"anyOf":[` + one.schema + `,` + other.schema + `],"description":"either"}`, func(t *rapid.T) string {
			return rapid.SampledFrom([]drawn{one, other}).Draw(t, "option").value(t)
		}}
	case 3:
		one, other := drawSome(t, depth-1), drawSome(t, depth-1)
		both := object([]property{{"one", one, true}, {"other", other, true}}, "true", nil)
		return drawn{`{"allOf":[{"properties":{"one":` + one.schema + `},"required":["one"]},{"type":"object","properties":{"other":` +
			other.schema + `},"required":["other"]}]}`, both.value}
	default:
		return drawObject(t, depth)
	}
}

func drawObject(t *rapid.T, depth int) drawn {
	var properties []property
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "ab", "b", "é", `q"`, ""}), 0, 4, rapid.ID[string]).Draw(t, "names") {
		properties = append(properties, property{name, drawSome(t, depth-1), rapid.Bool().Draw(t, "required")})
	}
	switch rapid.IntRange(0, 2).Draw(t, "additional") {
	case 0:
		return object(properties, "false", nil)
	case 1:
		rest := drawSome(t, depth-1)
		return object(properties, rest.schema, &rest)
	}
	return object(properties, "true", &drawn{"true", func(*rapid.T) string { return `[null,{"x":-0.5e+10}]` }})
}

type property struct {
	name string
	drawn
	required bool
}

func object(properties []property, additional string, rest *drawn) drawn {
	var listed, required []string
	for _, p := range properties {
		listed = append(listed, quote(p.name)+":"+p.schema)
		if p.required {
			required = append(required, quote(p.name))
		}
	}
	schema := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":%s}`,
		strings.Join(listed, ","), strings.Join(required, ","), additional)
	return drawn{schema, func(t *rapid.T) string {
		var members []string
		for _, p := range properties {
			if p.required || rapid.Bool().Draw(t, "there") {
				members = append(members, quote(p.name)+":"+p.value(t))
			}
		}
		if rest != nil {
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"abc", "x", "è", "aé"}), 0, 2, rapid.ID[string]).Draw(t, "others") {
				members = append(members, quote(name)+":"+rest.value(t))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	}}
}

func drawArray(t *rapid.T, depth int) drawn {
	item := drawSome(t, depth-1)
	least := rapid.IntRange(0, 3).Draw(t, "minItems")
	most := least + rapid.IntRange(0, 3).Draw(t, "more")
	return drawn{fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, item.schema, least, most), func(t *rapid.T) string {
		var items []string
		for range rapid.IntRange(least, most).Draw(t, "items") {
			items = append(items, item.value(t))
		}
		return "[" + strings.Join(items, ",") + "]"
	}}
}

func drawTuple(t *rapid.T, depth int) drawn {
	first, second, others := drawSome(t, depth-1), drawSome(t, depth-1), drawSome(t, depth-1)
	schema := fmt.Sprintf(`{"type":"array","prefixItems":[%s,%s],"items":%s,"minItems":1}`, first.schema, second.schema, others.schema)
	return drawn{schema, func(t *rapid.T) string {
		items := []string{first.value(t), second.value(t), others.value(t), others.value(t)}
		return "[" + strings.Join(items[:rapid.IntRange(1, 4).Draw(t, "items")], ",") + "]"
	}}
}

func drawScalar(t *rapid.T) drawn {
	switch rapid.IntRange(0, 7).Draw(t, "scalar") {
	case 0:
		return drawn{rapid.SampledFrom([]string{`{"type":["boolean","null"]}`, `{"enum":[null,true,false]}`, `{}`, `true`}).Draw(t, "schema"),
			func(t *rapid.T) string { return rapid.SampledFrom([]string{"true", "null"}).Draw(t, "word") }}
	case 1:
		constants := []string{`"é\"\n"`, `12`, `-0.5`, `{"a":[1,{"b":null}]}`, `[]`, `""`}
		return drawn{`{"enum":[` + strings.Join(constants, ",") + `]}`,
			func(t *rapid.T) string { return rapid.SampledFrom(constants).Draw(t, "constant") }}
	case 2:
		return drawInteger(t)
	case 3:
		return drawNumber(t)
	case 4:
		p := rapid.SampledFrom([]string{`^[a-z]{2,4}$`, `^(?:ab|é+)?$`, `[0-9]`, `^x|y$`, `^a.c$`, `^\d+(\.\d{1,2})?$`, `^"\\$`, `^(?i)yes$`}).Draw(t, "pattern")
		// A schema's patterns are those of ECMAScript, whose dot excludes every line end;
		// Go's dot excludes only the line feed.
		inGo := strings.ReplaceAll(p, "a.c", `a[^\n\r\x{2028}\x{2029}]c`)
		return drawn{`{"type":"string","pattern":` + quote(p) + `}`, func(t *rapid.T) string { return quote(rapid.StringMatching(inGo).Draw(t, "match")) }}
	case 5:
		f := rapid.SampledFrom([][2]string{{"date", "2024-02-29"}, {"time", "23:59:59Z"}, {"date-time", "1999-12-31T00:00:00.5+01:00"},
			{"uuid", "01234567-89ab-cdef-0123-456789ABCDEF"}, {"email", "a.b@c.de"}, {"hostname", "a-b.c"}, {"ipv4", "255.0.10.199"}}).Draw(t, "format")
		return drawn{`{"type":"string","format":"` + f[0] + `"}`, func(*rapid.T) string { return quote(f[1]) }}
	default:
		least := rapid.IntRange(0, 5).Draw(t, "minLength")
		most := least + rapid.IntRange(0, 5).Draw(t, "more")
		return drawn{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, least, most), func(t *rapid.T) string {
			return quote(rapid.StringN(least, most, -1).Draw(t, "string"))
		}}
	}
}

func drawInteger(t *rapid.T) drawn {
	edge := rapid.OneOf(rapid.Int64Range(-150, 150), rapid.Int64Range(-1e17, 1e17))
	low := edge.Draw(t, "minimum")
	high := max(low, edge.Draw(t, "maximum"))
	return drawn{fmt.Sprintf(`{"type":"integer","minimum":%d,"exclusiveMaximum":%d}`, low, high+1), func(t *rapid.T) string {
		return strconv.FormatInt(rapid.Int64Range(low, high).Draw(t, "integer"), 10)
	}}
}

// drawNumber draws limits in hundredths, and values in thousandths.
func drawNumber(t *rapid.T) drawn {
	low := rapid.IntRange(-300, 300).Draw(t, "minimum")
	high := low + rapid.IntRange(1, 300).Draw(t, "width")
	return drawn{fmt.Sprintf(`{"type":"number","exclusiveMinimum":%s,"maximum":%s}`, decimal(low*10), decimal(high*10)), func(t *rapid.T) string {
		return decimal(rapid.IntRange(low*10+1, high*10).Draw(t, "number"))
	}}
}

// decimal writes a number of thousandths.
func decimal(n int) string {
	text := strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	if text == "-0" {
		return "0"
	}
	return text
}

// quote writes a string as JSON, with only the escapes that JSON requires.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // strings always encode
	// JSON does not require an escape for these two, but Go's encoder escapes them for
	// JavaScript. An escaped backslash before such letters stays as it is.
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\\`, `\\`).Replace(strings.TrimSuffix(b.String(), "\n"))
}
