// Package shell writes commands that people paste into a shell. It runs none.
package shell

import (
	"regexp"
	"strings"
)

// plain is a word that no shell reads as more than itself.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Quote returns a word so that a POSIX shell reads it as one word with just these
// characters.
func Quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
