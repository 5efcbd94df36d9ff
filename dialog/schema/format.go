package schema

import "regexp/syntax"

// The formats that are held. Days fit their months.
const (
	datePattern = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
		`|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
		`|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	timePattern = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	hexPattern  = `[0-9a-fA-F]`
	namePattern = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?`
	bytePattern = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
)

// formatPattern is the expression of the strings of a format, or of those among
// them that are plain to see.
func formatPattern(format string) (re *syntax.Regexp, known bool) {
	var expression string
	switch format {
	case "date":
		expression = datePattern
	case "time":
		expression = timePattern
	case "date-time":
		expression = datePattern + "T" + timePattern
	case "uuid":
		expression = hexPattern + "{8}(?:-" + hexPattern + "{4}){3}-" + hexPattern + "{12}"
	case "email":
		expression = `[a-zA-Z0-9_+-]{1,32}(?:\.[a-zA-Z0-9_+-]{1,15}){0,2}@` + namePattern + `(?:\.` + namePattern + `){1,3}`
	case "hostname":
		expression = namePattern + `(?:\.` + namePattern + `){0,3}`
	case "ipv4":
		expression = bytePattern + `(?:\.` + bytePattern + `){3}`
	default:
		return nil, false
	}
	re, err := syntax.Parse(expression, syntax.Perl)
	return re, err == nil
}
