package protocol

import (
	"net/url"
	"strings"
)

// WithoutEmptySegments returns a URL without the empty segments of its path, as clients
// make them that join "…/v1/" and "/chat/completions". The URL itself does not change.
func WithoutEmptySegments(u *url.URL) *url.URL {
	if !strings.Contains(u.Path, "//") {
		return u
	}
	squeezed := *u
	squeezed.Path, squeezed.RawPath = squeeze(u.Path), squeeze(u.RawPath)
	return &squeezed
}

func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
