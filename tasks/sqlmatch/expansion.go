package sqlmatch

import "strings"

// mostExpanded is how many references to tables of WITH a query may have once each is
// replaced by what it stands for. SQLite does that while it compiles, when no limit on
// steps or time can end it: twenty tables that name the one before twice are a million.
const mostExpanded = 500

// expanded is the number of references to tables of WITH in a query, counted as SQLite
// expands them, or something above mostExpanded.
func expanded(query string) int {
	tokens := tokensOf(query)
	sizes := map[string]int{} // of the tables that are defined
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
				if count > mostExpanded {
					return count
				}
			}
		case i+1 < len(tokens) && tokens[i+1] == ".": // a column of the table
		default:
			top.count = min(top.count+sizes[plainName(t)], 2*mostExpanded)
		}
	}
	return open[0].count
}

// tokensOf are the tokens of a query that are neither blanks nor comments.
func tokensOf(query string) []string {
	var out []string
	for query != "" {
		n := token(query)
		t := query[:n]
		query = query[n:]
		if strings.TrimSpace(t) != "" && !strings.HasPrefix(t, "--") && !strings.HasPrefix(t, "/*") {
			out = append(out, t)
		}
	}
	return out
}

// defined is the name of the table that WITH defines if the tokens are followed by a
// bracket, as in: name (column) AS NOT MATERIALIZED.
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

// plainName is a name without quotes, in lower case.
func plainName(t string) string { return strings.ToLower(strings.Trim(t, "\"`[]'")) }
