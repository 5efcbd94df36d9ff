package conversation

// LayOut returns the key of a request, and the tokens to sample after with the Seq of the
// recorded call that they begin with.
func (c *Conversation) LayOut(r *Request) (key string, prompt []int32, parent int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.choosePolicy(r); err != nil {
		return "", nil, 0, err
	}
	form := c.canonicalize(r)
	h, err := c.historyOf(r, form)
	return form.key, h.prompt, h.parent, err
}
