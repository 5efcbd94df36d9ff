package memory

// Limit is how much memory processes here may take, in bytes: the machine's, or the
// limit of a container around them if that is less; 0 where neither is known.
func Limit() int64 {
	total, limit := Total(), containerLimit()
	if total == 0 || limit > 0 && limit < total {
		return limit
	}
	return total
}
