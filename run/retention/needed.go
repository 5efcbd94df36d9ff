package retention

import (
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Unneeded returns the versions of a policy, by number, whose files may be deleted under
// keep. The rollouts of the run sample from versions up to lag steps behind.
func Unneeded(h record.Holdings, keep spec.Keep, lag int) []int {
	if len(h.Versions) == 0 {
		return nil
	}
	// While version n is the newest, rollouts of step n+1 sample from version n−lag or a
	// later one. Those of a step that is being replayed sample from one version earlier.
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

// promotedVersions returns the promoted version and the one before it, or, if ever is
// true, all that were ever promoted.
func promotedVersions(moves []record.Promotion, ever bool) map[int]bool {
	out := map[int]bool{}
	for i, p := range moves {
		if ever || i == len(moves)-1 {
			out[p.Version], out[p.Previous] = true, true
		}
	}
	return out
}
