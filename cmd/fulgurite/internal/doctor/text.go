package doctor

import (
	"fmt"
	"path/filepath"
)

// bytesText returns a number of bytes as readable text.
func bytesText(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.3g GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/1e6)
}

func parentOf(path string) string { return filepath.Dir(path) }
