package jinja

import "math/big"

// testOf is the test of a name, or nil.
func testOf(name string) applied {
	switch name {
	case "==", "eq", "equalto":
		return comparing("==")
	case "!=", "ne":
		return comparing("!=")
	case "<", "lt", "lessthan":
		return comparing("<")
	case "<=", "le":
		return comparing("<=")
	case ">", "gt", "greaterthan":
		return comparing(">")
	case ">=", "ge":
		return comparing(">=")
	case "in":
		return comparing("in")
	case "divisibleby":
		return func(r *run, v any, a actual) any {
			return r.equal(r.arithmetic("%", v, r.bind(name, a, "num")[0]), int64(0))
		}
	case "odd", "even":
		return func(r *run, v any, a actual) any {
			r.bind(name, a)
			return r.equal(r.arithmetic("%", v, int64(2)), int64(0)) == (name == "even")
		}
	case "lower", "upper":
		return func(r *run, v any, a actual) any { r.bind(name, a); return r.kindOf("is"+name, r.str(v)) }
	case "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping",
		"iterable", "sequence", "callable":
		return func(r *run, v any, a actual) any { r.bind(name, a); return r.isA(name, v) }
	}
	return nil
}

func comparing(op string) applied {
	return func(r *run, v any, a actual) any {
		return r.compare(op, v, r.bindPositional("the test "+op, a, "other")[0])
	}
}

// isA says whether a value is of a kind.
func (r *run) isA(kind string, v any) bool {
	switch kind {
	case "defined", "undefined":
		_, is := v.(*undefined)
		return is == (kind == "undefined")
	case "none":
		return v == any(none{})
	case "boolean":
		_, is := v.(bool)
		return is
	case "true", "false":
		return v == any(kind == "true")
	case "integer", "float", "number":
		return isNumber(kind, v)
	case "string":
		_, is := plain(v)
		return is
	case "mapping":
		_, is := v.(*dict)
		return is
	}
	return isCollection(kind, v)
}

func isNumber(kind string, v any) bool {
	switch v.(type) {
	case bool:
		return kind == "number"
	case int64, *big.Int:
		return kind != "float"
	case float64:
		return kind != "integer"
	}
	return false
}

func isCollection(kind string, v any) bool {
	switch v.(type) {
	case string, markup, *list, *tuple, *dict, *interval:
		return kind != "callable"
	case *undefined:
		return true
	case *view, *generator:
		return kind == "iterable"
	case *loopContext:
		return kind != "sequence"
	case *closure, *method, *builtin:
		return kind == "callable"
	}
	return false
}
