package retention

import (
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Unneeded are the versions of a policy whose files may go under keep, by number, in a
// run whose rollouts sample from versions up to lag steps behind.
func Unneeded(h record.Holdings, keep spec.Keep, lag int) []int {
	if len(h.Versions) == 0 {
		return nil
	}
	// While version n is the newest, rollouts of step n+1 sample from version n−lag at
	// least, and those of a step that is being replayed from the one before.
	newest := slices.Max(h.Versions)
	first := newest - max(keep.Last-1, lag+1)
	promoted := promotedVersions(h.Promotions, keep.Promoted)
	var out []int
	for _, n := range h.Versions {
		byNumber := n == 0 || n >= first || keep.Every > 0 && n%keep.Every == 0
		if byNumber || promoted[n] || slices.Contains(h.Undecided, n) || slices.Contains(h.InUse, n) {
			continue
		}
		out = append(out, n)
	}
	return out
}

// promotedVersions are the promoted version and the one before it, or all that ever were.
func promotedVersions(moves []record.Promotion, ever bool) map[int]bool {
	out := map[int]bool{}
	for i, p := range moves {
		if ever || i == len(moves)-1 {
			out[p.Version], out[p.Previous] = true, true
		}
	}
	return out
}
