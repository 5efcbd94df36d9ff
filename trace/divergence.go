package trace

// Divergence says where an attempt's requests began to differ from those of an earlier
// attempt at the same rollout, so that it could no longer be replayed. It is recorded
// with the first such call, Seq of Address.
//
// An agent with several calls in flight may make one that was lost with an earlier
// attempt before it repeats the others: that is no divergence once all recorded calls
// have been replayed.
type Divergence struct {
	Address `json:"-"`
	Seq     int `json:"-"`
	// Earlier is the attempt that is compared with, EarlierSeq its call that comes
	// nearest among those that were not replayed.
	Earlier    int `json:"earlier"`
	EarlierSeq int `json:"earlier_seq"`
	// Difference is the first one of the two requests, in words with excerpts.
	Difference string `json:"difference"`
}
