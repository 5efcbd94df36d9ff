package trace

// Divergence says where an attempt's requests began to differ from those of an earlier
// attempt at the same rollout, so that it could no longer be replayed. It is recorded
// with the first call that differs, which has number Seq in the attempt Address.
//
// An agent with several calls in flight may make a call that was lost with an earlier
// attempt before it repeats the others. That is no divergence once all recorded calls
// have been replayed.
type Divergence struct {
	Address `json:"-"`
	Seq     int `json:"-"`
	// Earlier is the attempt of the comparison. EarlierSeq is its call that is most
	// similar among those that were not replayed.
	Earlier    int `json:"earlier"`
	EarlierSeq int `json:"earlier_seq"`
	// Difference describes the first difference between the two requests, with excerpts.
	Difference string `json:"difference"`
}
