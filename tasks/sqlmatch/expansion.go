package sqlmatch

import "strings"

// maxExpanded is how many references to tables of WITH a query may have after expansion,
// when each is replaced by its definition. SQLite expands them while it compiles, where
// no limit on steps or time ends it: with twenty tables that each refer twice to the one
// before, there are a million references.
const maxExpanded = 500

// expanded returns the number of references to tables of WITH in a query, counted after
// SQLite's expansion. If it is larger than maxExpanded, the number may be wrong, but is
// larger than maxExpanded, too.
func expanded(query string) int {
	tokens := tokensOf(query)
	sizes := map[string]int{} // references in each defined table, and one for the table itself
	type definition struct {
		name         string
		depth, count int
	}
	open := []definition{{}}
	depth := 0
	for i, t := range tokens {
		top := &open[len(open)-1]
		switch {
		case t == "(":
			if name := defined(tokens[:i]); name != "" {
				open = append(open, definition{name: name, depth: depth})
			}
			depth++
		case t == ")":
			depth--
			if len(open) > 1 && depth == top.depth {
				sizes[top.name] = 1 + top.count
				count := top.count
				open = open[:len(open)-1]
				if count > maxExpanded {
					return count
				}
			}
		case i+1 < len(tokens) && tokens[i+1] == ".": // a column of the table
		default:
			top.count = min(top.count+sizes[plainName(t)], 2*maxExpanded)
		}
	}
	return open[0].count
}

// tokensOf returns the tokens of a query that are neither blanks nor comments.
func tokensOf(query string) []string {
	var out []string
	for query != "" {
		n := token(query)
		t := query[:n]
		query = query[n:]
		if !blank(t) {
			out = append(out, t)
		}
	}
	return out
}

// defined returns the name of a table that WITH defines, if the tokens before an opening
// bracket are such a definition, as in: name (column) AS NOT MATERIALIZED. Otherwise it
// returns "".
func defined(tokens []string) string {
	i := len(tokens) - 1
	if i >= 0 && strings.EqualFold(tokens[i], "materialized") {
		if i--; i >= 0 && strings.EqualFold(tokens[i], "not") {
			i--
		}
	}
	if i < 1 || !strings.EqualFold(tokens[i], "as") {
		return ""
	}
	if i--; tokens[i] == ")" {
		for i > 0 && tokens[i] != "(" {
			i--
		}
		i--
	}
	if i < 0 {
		return ""
	}
	return plainName(tokens[i])
}

// plainName returns a name without quotes, in lower case.
func plainName(t string) string { return strings.ToLower(strings.Trim(t, "\"`[]'")) }
