// Package shell writes the commands that messages show, so that people can paste them into
// a shell in any directory: with quoted words, and with the flags by which the command finds
// the runs. It runs none. A test takes all messages with commands and reads the commands
// with the program's own parser.
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
