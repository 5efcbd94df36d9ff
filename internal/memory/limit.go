package memory

// Limit returns how much memory processes may take here, in bytes: the machine's memory,
// or the limit of the surrounding container if that is less. It returns 0 if neither is
// known.
func Limit() int64 {
	total, limit := Total(), containerLimit()
	if total == 0 || limit > 0 && limit < total {
		return limit
	}
	return total
}
