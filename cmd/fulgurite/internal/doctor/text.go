package doctor

import (
	"fmt"
	"path/filepath"
	"strings"
)

// bytesText returns a number of bytes as readable text.
func bytesText(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/1e6)
}

// quoted returns a word, quoted for a shell's command line where needed.
func quoted(word string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("-_./:@%+,=~", r) || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func parentOf(path string) string { return filepath.Dir(path) }
